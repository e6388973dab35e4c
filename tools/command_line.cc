#include "tools/command_line.h"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>

#include "kiln/version.h"
#include "tools/exit_code.h"
#include "tools/program.h"
#include "util/log.h"
#include "util/nearest.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

bool takes_value(const CLI::Option& option) {
  return !option.get_positional() && option.get_type_size_max() > 0 &&
         option.get_items_expected_max() > 0;
}

/// Joins "--option value" to "--option=value" so that a value may begin with a dash
/// ("--option --maxrregcount=64") and an empty value stays a value.
std::vector<std::string> join_values(const CLI::App& verb,
                                     const std::vector<std::string>& arguments) {
  std::vector<std::string> joined;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--") {
      joined.insert(joined.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i),
                    arguments.end());
      break;
    }
    const CLI::Option* option =
        word.starts_with("--") ? verb.get_option_no_throw(word) : nullptr;
    if (option != nullptr && takes_value(*option) && i + 1 < arguments.size()) {
      ++i;
      joined.push_back(word + "=" + arguments[i]);
    } else {
      joined.push_back(word);
    }
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

Error unexpected_word(const CLI::App& verb, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  if (name.starts_with("-")) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("{}: unknown option '{}'{}", verb.get_name(), name,
                        did_you_mean(name, option_names(verb)))};
  }
  return {ErrorCode::kInvalidArgument,
          fmt::format("{}: unexpected argument '{}'", verb.get_name(), word)};
}

/// CLI11's message as one sentence of ours.
Error parse_failure(const CLI::App& verb, const CLI::ParseError& error) {
  if (error.get_name() == "ExtrasError") {
    const std::vector<std::string> words = verb.remaining();
    if (!words.empty())
      return unexpected_word(verb, words.front());
  }
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  return {ErrorCode::kInvalidArgument, fmt::format("{}: {}", verb.get_name(), text)};
}

int fail_usage(const Context& context, const Error& error, std::string_view hint) {
  const int status = report_failure(context, error);
  fmt::print(stderr, "{}\n", context.err.styled(hint, Style::kDim));
  return status;
}

/// --json must shape even the complaint about a wrong command line.
bool asks_for_json(const std::vector<std::string>& arguments) {
  return std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
}

Result<Config> settings(const CommonOptions& common) {
  Config config = KILN_TRY(read_config(process_environment()));
  if (config.log_level)
    KILN_TRY(set_log_level(*config.log_level));
  if (!common.cache_dir.empty())
    config.cache_dir = common.cache_dir;
  return config;
}

int run_verb(const ParsedVerb& parsed, Context& context) {
  context.json = parsed.common->json;
  Result<Config> config = settings(*parsed.common);
  if (!config)
    return report_failure(context, config.error());
  context.config = *std::move(config);
  auto stop = StopSignal::install();
  if (!stop)
    return report_failure(context, stop.error());
  context.stop = stop->get();
  const int status = parsed.run(context);
  if (std::fflush(stdout) != 0 && errno != EPIPE) {
    return report_failure(context, {ErrorCode::kIo, "cannot write to standard output"});
  }
  return context.stop->exit_code().value_or(status);
}

int run_program(Program& program, std::vector<std::string> arguments,
                Context& context) {
  context.json = asks_for_json(arguments);
  if (arguments.empty() || arguments[0] == "help") {
    // `kiln help VERB` is `kiln VERB --help`.
    if (arguments.size() > 1)
      arguments = {arguments[1], "--help"};
    else
      arguments = {"--help"};
  }
  if (arguments[0] == "--help" || arguments[0] == "-h") {
    print(program.app.help());
    return kAllDone;
  }
  if (arguments[0] == "--version") {
    print(fmt::format("kiln {}\n", version()));
    return kAllDone;
  }
  const auto parsed =
      std::find_if(program.verbs.begin(), program.verbs.end(),
                   [&](const ParsedVerb& v) { return v.verb->name == arguments[0]; });
  if (parsed == program.verbs.end()) {
    std::vector<std::string> names;
    for (const Verb& verb : verbs()) names.emplace_back(verb.name);
    return fail_usage(
        context,
        {ErrorCode::kInvalidArgument, fmt::format("unknown verb '{}'{}", arguments[0],
                                                  did_you_mean(arguments[0], names))},
        "see `kiln --help`");
  }
  arguments = join_values(*parsed->app, {arguments.begin() + 1, arguments.end()});
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes words from the back
  try {
    parsed->app->parse(arguments);
  } catch (const CLI::CallForHelp&) {
    print(parsed->app->help("kiln"));
    return kAllDone;
  } catch (const CLI::ParseError& error) {
    return fail_usage(context, parse_failure(*parsed->app, error),
                      fmt::format("see `kiln {} --help`", parsed->verb->name));
  }
  return run_verb(*parsed, context);
}

}  // namespace

int run_command_line(std::vector<std::string> arguments) {
  const std::unique_ptr<Program> program = make_program();
  Context context;
  return run_program(*program, std::move(arguments), context);
}

}  // namespace kiln::tools
