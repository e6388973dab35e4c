// The kiln program: from argv to a verb. CLI11 parses; this file decides what is valid
// and how errors read, so that wrong usage always gives exit 2, one sentence and the
// nearest match.

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "build/dead_mounts.h"
#include "build/settings.h"
#include "kiln/version.h"
#include "request/nvcc_words.h"
#include "tools/output/standard_streams.h"
#include "tools/program.h"
#include "util/log.h"
#include "util/nearest.h"
#include "util/try.h"
#include "util/words.h"

namespace kiln::tools {
namespace {

template <typename... Values>
tl::unexpected<Error> wrong_usage(const CLI::App& verb,
                                  fmt::format_string<Values...> what,
                                  Values&&... values) {
  return refuse("{}: {}", verb.get_name(),
                fmt::format(what, std::forward<Values>(values)...));
}

/// A word of the command line that names an option.
struct OptionWord {
  std::string name;                  // "--arch", "-D"
  std::optional<std::string> value;  // of "--arch=9.0", "-DX"
};

std::optional<OptionWord> option_word(const std::string& word) {
  if (word.starts_with("--")) {
    const std::size_t equals = word.find('=');
    OptionWord found{word.substr(0, equals), std::nullopt};
    if (equals != std::string::npos)
      found.value = word.substr(equals + 1);
    return found;
  }
  constexpr std::size_t kShort = 2;  // "-D"
  if (!word.starts_with("-") || word.size() < kShort)
    return std::nullopt;
  OptionWord found{word.substr(0, kShort), std::nullopt};
  if (word.size() > kShort)
    found.value = word.substr(kShort);
  return found;
}

/// Joins each option and its value into one word, "--option=value", so that a value may
/// begin with a dash ("--option --maxrregcount=64"). Leaves unknown options to CLI11.
/// Errors: a value that is missing, empty or not wanted; an option given twice.
Result<std::vector<std::string>> join_values(
    const CLI::App& verb, const std::vector<std::string>& arguments) {
  std::vector<std::string> joined;
  std::set<const CLI::Option*> given;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {
      joined.insert(joined.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i),
                    arguments.end());
      break;
    }
    const auto word = option_word(arguments[i]);
    const auto* option = word ? verb.get_option_no_throw(word->name) : nullptr;
    if (option == nullptr) {
      joined.push_back(arguments[i]);
      continue;
    }
    if (!takes_value(*option)) {
      if (word->value)
        return wrong_usage(verb, "{} takes no value", word->name);
      joined.push_back(arguments[i]);
      continue;
    }
    const bool once = option->get_items_expected_max() == 1;
    if (!given.insert(option).second && once)
      return wrong_usage(verb, "{} is given twice", word->name);
    std::string value;
    if (word->value)
      value = *word->value;
    else if (i + 1 < arguments.size())
      value = arguments[++i];
    if (value.empty()) {
      return wrong_usage(verb, "{} needs a value: {} {}", word->name, word->name,
                         option->get_type_name());
    }
    joined.push_back(word->name + (word->name.starts_with("--") ? "=" : "") + value);
  }
  return joined;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

tl::unexpected<Error> unexpected_word(const CLI::App& verb, const std::string& word,
                                      const std::vector<std::string>& arguments) {
  const std::string name = word.substr(0, word.find('='));
  if (name.starts_with("-")) {
    const auto at = std::ranges::find(arguments, word);
    const std::string next = arguments.end() - at > 1 ? *(at + 1) : "";
    const std::string nvcc = verb.get_option_no_throw("--option") != nullptr
                                 ? request::nvcc_hint(word, next).advice
                                 : "";
    if (!nvcc.empty())
      return wrong_usage(verb, "unknown option '{}': {}", word, nvcc);
    return wrong_usage(verb, "unknown option '{}'{}", name,
                       did_you_mean(name, option_names(verb)));
  }
  return wrong_usage(verb, "unexpected argument '{}'", word);
}

/// Turns CLI11's message into one sentence of ours.
tl::unexpected<Error> parse_failure(const CLI::App& verb, const CLI::ParseError& error,
                                    const std::vector<std::string>& arguments) {
  // The error's name is the verb's: only the exit code tells which error it is.
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    for (const std::string& word : verb.remaining()) {
      if (word != "--")
        return unexpected_word(verb, word, arguments);
    }
  }
  std::string text = error.what();
  return wrong_usage(verb, "{}", text.substr(0, text.find('\n')));
}

int fail_usage(const Context& context, const tl::unexpected<Error>& error,
               std::string_view hint) {
  const int status = report_failure(context, error.value());
  print_error(fmt::format("{}\n", context.err.styled(hint, Style::kDim)));
  return status;
}

/// With --json even an error in the command line must be JSON.
bool asks_for_json(const std::vector<std::string>& arguments) {
  return std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
}

Result<Config> settings_of(const ParsedVerb& parsed) {
  Config config = KILN_TRY(settings({}, process_environment()));
  if (config.log_level) {
    if (auto set = set_log_level(*config.log_level); !set)
      return fail(set.error().code, "KILN_LOG: " + set.error().message);
  } else if (parsed.common->verbose) {
    KILN_TRY(set_log_level("info"));
  }
  KILN_TRY(parsed.options.read_settings(config));
  return config;
}

/// The default place may not be there yet. One that is named is, or is misspelt.
Result<void> check_cache_dir(const ParsedVerb& parsed, const Config& config) {
  const std::filesystem::path& folder = config.cache_dir;
  std::error_code unknown;
  if (config.cache_dir_by.name != "--cache-dir" ||
      parsed.verb->cache_dir == CacheDir::kMakes)
    return {};
  if (const auto answers = check_mount(config, "--cache-dir", folder); !answers)
    return parsed.verb->shows_dead_cache ? Result<void>() : answers;
  if (parsed.verb->cache_dir != CacheDir::kExpects ||
      std::filesystem::exists(folder, unknown) || unknown)
    return {};
  return fail(ErrorCode::kUnavailable, "{}: --cache-dir {}: there is no such folder",
              parsed.verb->name, folder.native());
}

int run_verb(const ParsedVerb& parsed, Context& context) {
  context.json = parsed.common->json;
  context.verbose = parsed.common->verbose;
  if (parsed.common->quiet)
    leave_notes_out();
  Result<Config> config = settings_of(parsed);
  if (!config)
    return report_failure(context, config.error());
  auto stop =
      StopSignal::install(parsed.verb->only_looks ? kLookerPatience : kDoerPatience);
  if (!stop)
    return report_failure(context, stop.error());
  context.stop = *std::move(stop);
  if (const auto checked = check_cache_dir(parsed, *config); !checked)
    return report_failure(context, checked.error());
  context.config = *std::move(config);
  const int status = finish(context, parsed.run(context));
  return context.stop->exit_code().value_or(status);
}

/// ", did you mean 'ls'?" of what other programs call a verb.
std::string verb_of_others(std::string_view word) {
  static constexpr std::pair<std::string_view, std::string_view> kWords[]{
      {"build", "compile' or 'warm"},
      {"cache", "stats"},
      {"check", "verify"},
      {"clean", "clear' or 'trim"},
      {"config", "doctor"},
      {"delete", "clear' or 'trim"},
      {"diff", "why"},
      {"env", "doctor"},
      {"exec", "run"},
      {"explain", "why"},
      {"export", "pack"},
      {"gc", "clear' or 'trim"},
      {"import", "unpack"},
      {"info", "stats"},
      {"list", "ls"},
      {"log", "events"},
      {"logs", "events"},
      {"prune", "clear' or 'trim"},
      {"remove", "clear' or 'trim"},
      {"rm", "clear' or 'trim"},
      {"status", "ps"},
      {"top", "ps"}};
  const auto* const found =
      std::ranges::find(kWords, word, [](const auto& row) { return row.first; });
  return found == std::end(kWords) ? ""
                                   : fmt::format(", did you mean '{}'?", found->second);
}

tl::unexpected<Error> unknown_verb(const Program& program, const std::string& word) {
  if (word.starts_with("-"))
    return refuse("the verb comes first: kiln VERB {}", word);
  std::string hint = verb_of_others(word);
  if (hint.empty()) {
    std::vector<std::string> names{"help", "--version"};
    for (const ParsedVerb& each : program.verbs) names.emplace_back(each.verb->name);
    hint = did_you_mean(word, names);
  }
  return refuse("unknown verb '{}'{}", word, hint);
}

/// Takes --color out of the words that are Kiln's, wherever it stands, so that it holds
/// for help and for every error, too.
Result<Colours> take_colours(std::vector<std::string>& arguments) {
  constexpr std::string_view kName = "--color";
  std::optional<std::string> word;
  for (auto at = arguments.begin(); at != arguments.end() && *at != "--";) {
    if (*at != kName && !at->starts_with("--color=")) {
      ++at;
      continue;
    }
    if (word)
      return refuse("--color is given twice");
    if (*at == kName)
      at = arguments.erase(at);
    word = at == arguments.end() ? "" : at->substr(at->find('=') + 1);
    if (word->empty())
      return refuse("--color needs a value: --color WHEN");
    at = arguments.erase(at);
  }
  return word ? about(kName, parse_word<Colours>(*word)) : Colours::kAuto;
}

int run_program(Program& program, std::vector<std::string> arguments,
                Context& context) {
  if (arguments.empty() || arguments[0] == "help") {
    // `kiln help VERB` is `kiln VERB --help`.
    if (arguments.size() > 2)
      return fail_usage(context, refuse("help: unexpected argument '{}'", arguments[2]),
                        "see `kiln --help`");
    if (arguments.size() == 2 && arguments[1] != "help")
      arguments = {arguments[1], "--help"};
    else
      arguments = {"--help"};
  }
  if (arguments[0] == "--help" || arguments[0] == "-h") {
    print_help(context.out, program.app.help());
    return kAllDone;
  }
  if (arguments[0] == "--version") {
    print(fmt::format("kiln {}\n", version()));
    return kAllDone;
  }
  const auto parsed =
      std::find_if(program.verbs.begin(), program.verbs.end(),
                   [&](const ParsedVerb& v) { return v.verb->name == arguments[0]; });
  if (parsed == program.verbs.end())
    return fail_usage(context, unknown_verb(program, arguments[0]),
                      "see `kiln --help`");
  const std::string hint = fmt::format("see `kiln {} --help`", parsed->verb->name);
  auto words = join_values(*parsed->app, {arguments.begin() + 1, arguments.end()});
  if (!words)
    return fail_usage(context, tl::unexpected(words.error()), hint);
  std::reverse(words->begin(), words->end());  // CLI11 takes words from the back
  try {
    parsed->app->parse(*words);
  } catch (const CLI::CallForHelp&) {
    if (parsed->verb->foreign_options != nullptr) {
      for (const std::string& name : parsed->verb->foreign_options(arguments))
        parsed->app->get_option(name)->group("");  // which help leaves out
    }
    print_help(context.out, parsed->app->help("kiln"));
    return kAllDone;
  } catch (const CLI::ParseError& error) {
    return fail_usage(context, parse_failure(*parsed->app, error, arguments), hint);
  }
  if (parsed->common->quiet && parsed->common->verbose)
    return fail_usage(
        context, wrong_usage(*parsed->app, "--quiet and --verbose exclude each other"),
        hint);
  return run_verb(*parsed, context);
}

/// Runs the program; returns the exit status. Reads the environment once.
int run_command_line(std::vector<std::string> arguments) {
  const std::unique_ptr<Program> program = make_program();
  if (!arguments.empty() && arguments[0] == "__complete") {
    complete(*program, {arguments.begin() + 1, arguments.end()});
    return kAllDone;  // whatever becomes of stdout
  }
  const auto colours = take_colours(arguments);
  choose_colours(colours.value_or(Colours::kAuto));
  Context context;  // lives until all is printed, or a late signal cuts it off
  context.json = asks_for_json(arguments);
  const int status = colours ? run_program(*program, std::move(arguments), context)
                             : fail_usage(context, tl::unexpected(colours.error()),
                                          "see `kiln --help`");
  if (const auto flushed = flush_output(); !flushed) {
    print_error("kiln: " + flushed.error().message + "\n");
    return status == kAllDone ? kSomeFailed : status;
  }
  return status;
}

}  // namespace
}  // namespace kiln::tools

int main(int argc, char** argv) {
  kiln::tools::open_missing_streams();
  // If a reader has gone, the next write gets EPIPE; no signal ends the program.
  std::signal(SIGPIPE, SIG_IGN);
  // A file over RLIMIT_FSIZE, likewise, is an error of the write.
  std::signal(SIGXFSZ, SIG_IGN);
  // The memory of a large object is given back with the object: left to itself, glibc
  // keeps up to 64 MiB for each thread.
  // NOLINTBEGIN(concurrency-mt-unsafe): no other thread runs yet
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20U);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 20U);  // which the first call has set to 128 KiB
  // NOLINTEND(concurrency-mt-unsafe)
  try {
    kiln::tools::print_warnings();
    return kiln::tools::run_command_line({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kiln: internal error: %s\n", error.what());
    return 1;
  }
}
