// Writes the man page from the program's own definition of its verbs and options, or
// the guide's table of settings: kiln-reference man|guide. Runs while building; not
// installed.

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "build/settings.h"
#include "kiln/version.h"
#include "tools/program.h"

namespace kiln::tools {
namespace {

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

/// A name and its meaning, both escaped.
std::string item(std::string_view name, std::string_view meaning) {
  return fmt::format(".TP\n.B {}\n{}\n", name, meaning);
}

std::string man_verb(const Verb& verb, const CLI::App& app) {
  std::string text =
      fmt::format(".SS {}\n{}.\n", troff(verb.name), troff(verb.summary));
  for (const CLI::Option* option : app.get_options()) {
    text += item(
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
  text += ".SH EXIT STATUS\n" + item("0", "All done.") +
          item("1", "Some items failed or could not be stored, or a key is unknown.") +
          item("2", "Wrong usage or input; nothing was done.") +
          item("3",
               "Something is missing here: an NVRTC for that architecture, the cache "
               "that --cache-dir names, a place to store the kernels.") +
          item("130, 143",
               "Stopped by SIGINT or SIGTERM; the work that was done is printed.") +
          ".PP\n.B verify\nsums 1 (corrupt), 8 (untrusted) and 16 (unreadable).\n"
          ".SH ENVIRONMENT\n";
  for (const Setting& setting : every_setting())
    text += item(setting.variable, troff(setting.meaning) + troff(by_default(setting)));
  text +=
      ".SH FILES\n.TP\n.I ~/.cache/kiln\n"
      "The cache, unless KILN_CACHE_DIR or XDG_CACHE_HOME names another place.\n"
      ".SH EXAMPLES\n" +
      item("kiln warm \\-\\-preset llama\\-3\\-8b \\-\\-arch 9.0",
           "Build the kernels that train a model, before the job.") +
      item("kiln why \\-\\-template scaled_softmax_fwd:dtype=bf16 \\-\\-arch 9.0",
           "Say which of the kernels that warm builds for these words are missing, and "
           "why.") +
      item("kiln verify \\-\\-quarantine",
           "Check every object, and move the corrupt ones away.") +
      item("kiln doctor", "Check this machine.") +
      ".SH SEE ALSO\n"
      "The guide and the other pages of Kiln's documents, in docs of its sources.\n";
  return text;
}

}  // namespace
}  // namespace kiln::tools

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  if (what == "guide") {
    fmt::print("{}", kiln::tools::settings_table());
    return 0;
  }
  if (what != "man") {
    fmt::print(stderr, "usage: kiln-reference man|guide\n");
    return 2;
  }
  fmt::print("{}", kiln::tools::man_page(*kiln::tools::make_program()));
  return 0;
}
