// kiln run: a program, with a stand-in beneath each NVRTC of it and its children, and
// with simulated devices, if asked for. Only sets their environment: what happens there
// is src/standin's, and the simulated driver's (docs/testing.md).

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tools/audit_modules.h"
#include "tools/verbs.h"
#include "util/shell_word.h"
#include "util/this_library.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

namespace fs = std::filesystem;
using Variables = std::vector<std::pair<std::string, std::string>>;

struct RunOptions {
  std::vector<std::string> command;
  std::string simulate;
  bool print_env = false;
};

/// Never returns if it starts. Errors: kInvalidArgument if there is no such program,
/// kIo.
Result<int> replace_this_process(const std::vector<std::string>& command) {
  const int err = execute(command);
  const bool is_program = err == E2BIG || err == ENOMEM || err == EAGAIN || err == EIO;
  return fail(is_program ? ErrorCode::kIo : ErrorCode::kInvalidArgument, "run: {}: {}",
              command[0], std::generic_category().message(err));
}

/// The folder of the simulated driver: that of KILN_TEST_KIT, of an installation, of a
/// build tree. Errors: kUnavailable.
Result<fs::path> find_test_kit() {
  const fs::path here = this_program().parent_path();
  std::vector<fs::path> places{here / KILN_TEST_KIT_FROM_PROGRAM, here / "../lib"};
  if (const auto named = process_environment()("KILN_TEST_KIT").value_or("");
      !named.empty())
    places = {fs::absolute(named)};
  std::string looked_at;
  for (const fs::path& each : places) {
    const fs::path place = each.lexically_normal();
    std::error_code not_there;
    if (fs::exists(place / "driver/libcuda.so.1", not_there))
      return place;
    looked_at += (looked_at.empty() ? "" : ", ") + place.native();
  }
  return fail(ErrorCode::kUnavailable,
              "there is no simulated driver (looked at {}): install Kiln's test kit, "
              "and let KILN_TEST_KIT name its folder",
              looked_at);
}

/// With these a program and its children find the simulated driver as libcuda.so.1, and
/// in it devices of these compute capabilities, "8.6,9.0". Errors: kInvalidArgument;
/// kUnavailable: there is no test kit here.
Result<Variables> simulation(const std::string& capabilities) {
  static const std::regex list(R"([0-9]+\.[0-9](,[0-9]+\.[0-9])*)");
  if (!std::regex_match(capabilities, list))
    return refuse("--simulate '{}': name compute capabilities, such as 8.6,9.0",
                  capabilities);
  const fs::path kit = KILN_TRY(find_test_kit());
  std::string path = (kit / "driver").native();
  if (const auto others = process_environment()("LD_LIBRARY_PATH").value_or("");
      !others.empty())
    path += ":" + others;
  return Variables{{"KILN_DRIVER", (kit / "driver/libcuda.so.1").native()},
                   {"KILN_SIMULATED_DEVICES", capabilities},
                   {"LD_LIBRARY_PATH", path}};
}

/// Errors: kInvalidArgument, kUnavailable.
Result<Variables> variables_of(const RunOptions& options) {
  Variables variables;
  if (!options.simulate.empty())
    variables = KILN_TRY(simulation(options.simulate));
  const auto modules = audit_modules();
  if (modules)
    variables.emplace_back(kAuditVariable, *modules);
  else if (options.print_env)
    return fail(modules.error().code, "run: " + modules.error().message);
  else  // a program that runs as without Kiln is better than none
    print_error(fmt::format("kiln: run: nothing stands in for NVRTC: {}\n",
                            modules.error().message));
  return variables;
}

int print_variables(const Context& context, const Variables& variables) {
  nlohmann::ordered_json document;
  for (const auto& [name, value] : variables) {
    document[name] = value;
    if (!context.json)
      print(fmt::format("export {}={}\n", name, shell_word(value)));
  }
  if (context.json)
    print_json(document);
  return 0;
}

Result<int> run(const Context& context, const RunOptions& options) {
  if (options.print_env != options.command.empty())
    return refuse(
        options.print_env
            ? "run: --print-env prints the environment of any program: name none"
            : "run: name the program: kiln run -- PROGRAM ARGS...");
  if (context.json && !options.print_env)
    return refuse("run: --json is for --print-env");
  const Variables variables = KILN_TRY(variables_of(options));
  if (options.print_env)
    return print_variables(context, variables);
  // NOLINTBEGIN(concurrency-mt-unsafe): only the watch for signals runs beside it
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  if (context.config.cache_dir_by.name == "--cache-dir")
    ::setenv("KILN_CACHE_DIR", context.config.cache_dir.c_str(), 1);
  // NOLINTEND(concurrency-mt-unsafe)
  return replace_this_process(options.command);
}

}  // namespace

Run add_run(OptionSet& cli) {
  auto options = std::make_shared<RunOptions>();
  cli.argument("PROGRAM", options->command, "The program and its arguments, behind --");
  cli.option("--simulate", options->simulate, "LIST",
             "Give the program simulated devices, such as 8.6,9.0, as its CUDA driver");
  cli.flag("--print-env", options->print_env,
           "Print the variables, as lines for a shell, and run nothing");
  cli.footer(
      "Wherever the program, or a child of it, loads NVRTC (linked, by name or by "
      "path),\n"
      "its compiles come from the cache, or are built for it by a worker with that "
      "NVRTC.\n"
      "KILN_NVRTC_STANDIN=off turns it off, =trace prints the calls at the end.\n"
      "--simulate takes Kiln's test kit: kernels run on the CPU, by an interpreter of "
      "PTX.\n"
      "Set-uid programs, and those with a static NVRTC, run as without Kiln. In a "
      "job's\n"
      "script --print-env does this for all programs.\n"
      "\n"
      "Examples:\n"
      "  kiln run -- python train.py\n"
      "  kiln run --simulate 8.6,9.0 -- ctest      without a GPU\n"
      "  eval \"$(kiln run --print-env)\"\n");
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
