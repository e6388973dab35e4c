// Writes the man page or the bash completion from the program's own definition of its
// verbs and options, or the guide's table of settings: kiln-reference man|bash|guide.
// Runs while building; not installed.

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "build/settings.h"
#include "device/known_architectures.h"
#include "device/profile.h"
#include "kiln/version.h"
#include "ops/preset.h"
#include "tools/program.h"

namespace kiln::tools {
namespace {

// clang-format off
constexpr const char* kCompletion = R"bash(# bash completion for kiln
# NAME:p=v,...: names of kernels, then of their parameters, then values.
_kiln_template() {{
  local word=$1 head last
  if [[ $word != *:* ]]; then
    local names
    names=$(kiln templates 2>/dev/null | awk 'NR > 1 {{ print $1 }}')
    mapfile -t COMPREPLY < <(compgen -W "$names" -- "$word")
    return
  fi
  last=${{word##*[:,]}}
  head=${{word%"$last"}}
  local all
  all=$(kiln templates "${{word%%:*}}" 2>/dev/null |
    awk '/^PARAMETER/ {{ on = 1; next }} /^$/ {{ on = 0 }} on {{ print $1, $2 }}')
  if [[ $last == *=* ]]; then
    local values
    values=$(awk -v name="${{last%%=*}}" '$1 == name && $2 !~ /\.\./ {{ gsub(/\|/, " ", $2); print $2 }}' <<<"$all")
    mapfile -t COMPREPLY < <(compgen -P "$head${{last%%=*}}=" -W "$values" -- "${{last#*=}}")
  else
    mapfile -t COMPREPLY < <(compgen -P "$head" -S = -W "$(awk '{{ print $1 }}' <<<"$all")" -- "$last")
    compopt -o nospace 2>/dev/null
  fi
  compopt +o filenames 2>/dev/null  # which would quote the = and the :
  local stem=${{word%"${{word##*[:=]}}"}}  # what bash takes for words before this one
  COMPREPLY=("${{COMPREPLY[@]#"$stem"}}")
}}
_kiln() {{
  # By blanks alone: bash splits NAME:p=v at : and =, too.
  local line=${{COMP_LINE:0:COMP_POINT}} typed options=
  read -ra typed <<<"$line"
  [[ $line == *[[:blank:]] ]] && typed+=("")
  local word=${{typed[-1]}} previous=${{typed[-2]}} verb=${{typed[1]}}
  if ((${{#typed[@]}} == 2)); then
    mapfile -t COMPREPLY < <(compgen -W "{verbs} help --help --version" -- "$word")
    return
  fi
  if [[ $previous == --template || $verb == render || $verb == templates ]] && [[ $word != -* ]]; then
    _kiln_template "$word"
    return
  fi
  case $previous in
    --sort)
      mapfile -t COMPREPLY < <(compgen -W "created used size template arch" -- "$word")
      return ;;
    --preset)
      mapfile -t COMPREPLY < <(compgen -W "{presets}" -- "$word"; compgen -f -X '!*.toml' -- "$word")
      return ;;
    --profile)
      mapfile -t COMPREPLY < <(compgen -W "{profiles}" -- "$word"; compgen -f -X '!*.json' -- "$word")
      return ;;
    --arch)  # a list, with commas
      local last=${{word##*,}}
      mapfile -t COMPREPLY < <(compgen -P "${{word%"$last"}}" -W "native {archs}" -- "$last")
      return ;;
{words}    --cache-dir | --template-dir | -I)
      mapfile -t COMPREPLY < <(compgen -d -- "$word")
      return ;;
  esac
  local with_value=
  case $verb in
{cases}    help) options="{verbs}" ;;
  esac
  if [[ $word != -* && " $with_value " != *" $previous "* ]]; then
    case $verb in
      attention)
        mapfile -t COMPREPLY < <(compgen -W "explain warm why" -- "$word")
        return ;;
      key)
        if ((${{#typed[@]}} == 3)); then  # the file comes next
          mapfile -t COMPREPLY < <(compgen -W "new show" -- "$word")
          return
        fi ;;
      unpack)
        mapfile -t COMPREPLY < <(compgen -f -X '!*.kpack*' -- "$word"; compgen -d -- "$word")
        return ;;
      show | why | clear)
        local keys
        keys=$(kiln ls --limit 1000 2>/dev/null | awk 'NR > 1 {{ print $1 }}')
        mapfile -t COMPREPLY < <(compgen -W "$keys" -- "$word")
        return ;;
    esac
  fi
  if [[ $word == -* || $verb == help ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}}
complete -o filenames -F _kiln kiln
)bash";
// clang-format on

/// Escapes text for troff: backslashes and leading dots must not be read as requests.
std::string troff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  if (out.starts_with('.') || out.starts_with('\''))
    out.insert(0, "\\&");
  return out;
}

std::string first_name(const CLI::Option& option) {
  if (option.get_positional())
    return option.get_name(true);
  return option.get_lnames().empty() ? "-" + option.get_snames().front()
                                     : "--" + option.get_lnames().front();
}

std::string man_verb(const Verb& verb, const CLI::App& app) {
  std::string text =
      fmt::format(".SS {}\n{}.\n", troff(verb.name), troff(verb.summary));
  for (const CLI::Option* option : app.get_options()) {
    text += fmt::format(
        ".TP\n.B {}\n{}\n",
        troff(first_name(*option)) +
            (takes_value(*option) ? " \\fI" + troff(option->get_type_name()) + "\\fR"
                                  : ""),
        troff(option->get_description()));
  }
  return text;
}

/// " By default 10GiB.", or nothing.
std::string by_default(const Setting& setting) {
  return *setting.fallback == 0 ? "" : fmt::format(" By default {}.", setting.fallback);
}

/// The table of docs/guide.md.
std::string settings_table() {
  std::string text = "| variable | name | meaning |\n|---|---|---|\n";
  for (const Setting& setting : every_setting())
    text += fmt::format("| `{}` | `{}` | {}{} |\n", setting.variable, setting.name(),
                        setting.meaning, by_default(setting));
  return text;
}

std::string man_page(const Program& program) {
  std::string text = fmt::format(
      ".TH KILN 1 \"\" \"Kiln {}\" \"User Commands\"\n"
      ".SH NAME\nkiln \\- compiles CUDA kernels into a cache, and looks after it\n"
      ".SH SYNOPSIS\n.B kiln\n.I VERB\n.RI [ OPTION \\ ...]\n"
      ".SH DESCRIPTION\n"
      "Kiln compiles GPU kernels with NVRTC, for every architecture asked for, into a "
      "cache that cannot give a stale or wrong binary. No GPU and no driver is needed "
      "to build.\n"
      ".SH VERBS\n",
      version());
  for (const ParsedVerb& parsed : program.verbs)
    text += man_verb(*parsed.verb, *parsed.app);
  text +=
      ".SH EXIT STATUS\n"
      ".TP\n.B 0\nAll done.\n"
      ".TP\n.B 1\nSome items failed or could not be stored, or a key is unknown.\n"
      ".TP\n.B 2\nWrong usage or input; nothing was done.\n"
      ".TP\n.B 3\nSomething is missing here: an NVRTC for that architecture, the cache "
      "that --cache-dir names, a place to store what is built.\n"
      ".TP\n.B 130, 143\nStopped by SIGINT or SIGTERM; what was done is printed.\n"
      ".PP\n.B verify\nsums 1 (corrupt), 8 (untrusted) and 16 (unreadable).\n"
      ".SH ENVIRONMENT\n";
  for (const Setting& setting : every_setting())
    text += fmt::format(".TP\n.B {}\n{}{}\n", setting.variable, troff(setting.meaning),
                        troff(by_default(setting)));
  text +=
      ".SH FILES\n"
      ".TP\n.I ~/.cache/kiln\nThe cache, unless KILN_CACHE_DIR or XDG_CACHE_HOME names "
      "another place.\n"
      ".SH EXAMPLES\n"
      ".TP\n.B kiln warm \\-\\-preset llama\\-3\\-8b \\-\\-arch 9.0\n"
      "Build what the training of a model uses, before the job.\n"
      ".TP\n.B kiln why \\-\\-template scaled_softmax_fwd:dtype=bf16 \\-\\-arch 9.0\n"
      "Say which of the kernels that warm builds for these words are missing, and "
      "why.\n"
      ".TP\n.B kiln verify \\-\\-quarantine\n"
      "Check every object, and move the corrupt ones away.\n"
      ".TP\n.B kiln doctor\nSay what is found here, and what is wrong.\n"
      ".SH SEE ALSO\n"
      "The guide and the other pages of Kiln's documents, in docs of its sources.\n";
  return text;
}

/// The words that an option takes, if its description begins with them: "fwd, bwd".
std::string words_of(const CLI::Option& option) {
  const std::regex list("(\\w+(, \\w+)+)(;.*)?");
  std::smatch found;
  const std::string& text = option.get_description();
  if (!std::regex_match(text, found, list))
    return "";
  return std::regex_replace(found.str(1), std::regex(", "), " ");
}

std::string bash_completion(const Program& program) {
  constexpr int kOldestNvrtc = 12;  // that Kiln works with
  std::string verbs;
  std::string cases;
  std::map<std::string, std::string> words;  // of an option
  for (const ParsedVerb& parsed : program.verbs) {
    verbs += fmt::format("{}{}", verbs.empty() ? "" : " ", parsed.verb->name);
    std::string options;
    std::string with_value;
    for (const CLI::Option* option : parsed.app->get_options()) {
      if (option->get_positional())
        continue;
      options.append(options.empty() ? "" : " ").append(first_name(*option));
      if (takes_value(*option))
        with_value.append(with_value.empty() ? "" : " ").append(first_name(*option));
      if (const std::string list = words_of(*option); !list.empty())
        words.emplace(first_name(*option), list);
    }
    cases += fmt::format("    {}) options=\"{}\" with_value=\"{}\" ;;\n",
                         parsed.verb->name, options, with_value);
  }
  std::string word_cases;
  for (const auto& [option, list] : words)
    word_cases += fmt::format(
        "    {})\n      mapfile -t COMPREPLY < <(compgen -W \"{}\" -- \"$word\")\n"
        "      return ;;\n",
        option, list);
  std::set<std::string> archs;
  for (const device::KnownArchitecture& each : device::known_architectures()) {
    if (!each.last || each.last->major >= kOldestNvrtc)
      archs.insert(to_string(each.capability));
  }
  std::vector<std::string_view> presets;
  for (const ops::BuiltInPreset& each : ops::built_in_presets())
    presets.push_back(each.name);
  std::vector<std::string_view> profiles;
  for (const device::PublishedProfile& each : device::published_profiles())
    profiles.push_back(each.name);
  return fmt::format(kCompletion, fmt::arg("verbs", verbs), fmt::arg("cases", cases),
                     fmt::arg("words", word_cases),
                     fmt::arg("archs", fmt::format("{}", fmt::join(archs, " "))),
                     fmt::arg("presets", fmt::format("{}", fmt::join(presets, " "))),
                     fmt::arg("profiles", fmt::format("{}", fmt::join(profiles, " "))));
}

}  // namespace
}  // namespace kiln::tools

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  if (what == "guide") {
    fmt::print("{}", kiln::tools::settings_table());
    return 0;
  }
  if (what != "man" && what != "bash") {
    fmt::print(stderr, "usage: kiln-reference man|bash|guide\n");
    return 2;
  }
  const auto program = kiln::tools::make_program();
  fmt::print("{}", what == "man" ? kiln::tools::man_page(*program)
                                 : kiln::tools::bash_completion(*program));
  return 0;
}
