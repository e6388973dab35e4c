// kiln compile FILE.cu: compiles a user's source into the cache.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "build/artifact.h"
#include "compile/worker/compile_log.h"
#include "tools/architectures.h"
#include "tools/build_run.h"
#include "tools/exit_code.h"
#include "tools/output/file_output.h"
#include "tools/verbs.h"
#include "util/posix_error.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

constexpr std::uint64_t kMaxSourceBytes = 64U << 20U;

struct CompileOptions {
  std::vector<std::string> files;
  std::vector<std::string> linked;
  std::vector<std::string> link_options;
  ArchitectureOptions architectures;
  std::string driver;
  std::vector<std::string> include_dirs;
  std::vector<std::string> defines;
  std::vector<std::string> options;
  std::vector<std::string> names;
  std::string output;
  bool as_nvrtc = false;
};

Result<std::string> read_source(const Context& context, const std::string& file) {
  if (file != "-")
    return from_input(read_text_file(file, kMaxSourceBytes));
  std::string text;
  while (true) {
    const std::string piece = KILN_TRY(read_input(context.stop->token()));
    if (piece.empty())
      return text;
    text += piece;
    if (text.size() > kMaxSourceBytes) {
      return fail(ErrorCode::kResourceLimit,
                  fmt::format("standard input has over {} bytes", kMaxSourceBytes));
    }
  }
}

Result<SourceOptions> source_of(const Context& context, const CompileOptions& options,
                                const std::string& file) {
  SourceOptions made;  // no headers in memory; --arch is the target
  auto& [source, file_name, headers, include_dirs, defines, nvrtc_options, names,
         target, as_nvrtc, working_dir, toolchain] = made;
  source = KILN_TRY(read_source(context, file));
  file_name = file == "-" ? "standard input" : file;
  if (options.as_nvrtc) {
    as_nvrtc = true;
    nvrtc_options = options.options;
    for (const std::string& folder : options.include_dirs)
      nvrtc_options.push_back("-I" + folder);
    for (const std::string& define : options.defines)
      nvrtc_options.push_back("-D" + define);
    names = options.names;
    return made;
  }
  // "a/.." stays as it is: if a is a link, it is another folder than this one.
  const auto add =
      [&folders = include_dirs](const std::filesystem::path& folder) -> Result<void> {
    std::error_code error;
    folders.push_back(std::filesystem::absolute(folder, error));
    if (error)
      return posix_error("getcwd", folder, error.value());
    return {};
  };
  // A folder that is not there is no error, as for NVRTC: the key says that its headers
  // were not found.
  for (const std::string& folder : options.include_dirs) KILN_TRY(add(folder));
  // NVRTC looks for "x.h" beside the including file, but gets the source itself as
  // text: so add the source's folder, after those that were asked for.
  if (file != "-") {
    const auto folder = std::filesystem::path(file).parent_path();
    KILN_TRY(add(folder.empty() ? "." : folder));
  }
  defines = options.defines;
  nvrtc_options = options.options;
  if (file == options.files.front())
    names = options.names;
  return made;
}

Result<Request> make_request(const Context& context, const CompileOptions& options) {
  if (std::ranges::count(options.files, "-") > 1)
    return fail(ErrorCode::kInvalidArgument, "standard input is only one source");
  std::vector<SourceOptions> sources;
  for (const std::string& file : options.files)
    sources.push_back(KILN_TRY(source_of(context, options, file)));
  LinkOptions link;
  auto& [files, link_options] = link;
  files.assign(options.linked.begin(), options.linked.end());
  link_options = options.link_options;
  return Request::from_sources(std::move(sources), std::move(link));
}

/// Prints what NVRTC reported, for each architecture with a report.
void print_logs(const BuildReport& report) {
  for (std::size_t i = 0; i < report.items.size(); ++i) {
    const auto& object = report.entries[i].object;
    if (object == nullptr)
      continue;
    const auto* const keyed = std::get_if<KeyedRequest>(&report.items[i].keyed);
    const auto log = keyed != nullptr ? log_for(*keyed, *object) : object->log();
    const std::string text = log ? compile::diagnostics(*log) : log.error().message;
    if (!text.empty())
      print_error(fmt::format(
          "{}\n", printable_lines(fmt::format("{} {}:\n{}", report.items[i].label,
                                              report.items[i].arch, text))));
  }
}

Result<void> write_output(const CompileOptions& options, const BuildReport& report) {
  if (options.output.empty() || report.entries[0].object == nullptr)
    return {};
  return write_output_file(options.output, report.entries[0].object->payload());
}

void print_entries(const Context& context, const BuildReport& report) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < report.items.size(); ++i) {
    const auto* keyed = std::get_if<KeyedRequest>(&report.items[i].keyed);
    const BuildEntry& entry = report.entries[i];
    rows.push_back(
        {report.items[i].arch,
         entry.is_not_stored() ? "not stored" : std::string(to_string(entry.verdict)),
         format_duration(entry.elapsed), keyed != nullptr ? keyed->key.hex() : ""});
  }
  print(format_table({{"ARCH"},
                      {"OUTCOME"},
                      {"TIME", Align::kRight},
                      {.title = "KEY", .cut = Cut::kEnd}},
                     rows, context.out));
}

Result<int> run(Context& context, const CompileOptions& options) {
  Config config = context.config;
  config.for_driver = KILN_TRY(parse_driver_option(options.driver));
  if (!options.output.empty())
    KILN_TRY(check_output_path("-o", options.output));
  if (options.output == "-" && context.json)
    return fail(ErrorCode::kInvalidArgument,
                "-o - and --json both want standard output");
  const Request request = KILN_TRY(make_request(context, options));
  const auto service =
      KILN_TRY(BuildService::open(config, {.stop = context.stop->token()}));
  // Report wrong options before looking at the architectures.
  KILN_TRY(service->prepare(request));
  const auto architectures =
      KILN_TRY(select_architectures(*service, options.architectures));
  if (!options.output.empty() && architectures.size() != 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("-o writes one image, and {} architectures are asked for",
                            architectures.size()));
  }
  BuildReport report;
  add_items(*service, request, architectures, report, context.stop->token());
  report.driver = config.for_driver;
  print_toolchains(context, report);
  // With -o the image may be for whoever asks for that architecture.
  if (options.output.empty())
    print_never_asked_for(context, report);
  KILN_TRY(run_builds(context, *service,
                      {.jobs = service->jobs().get(), .keep_objects = true}, report));
  print_logs(report);
  if (context.json)
    print_json(report_json(report));
  else if (options.output != "-")
    print_entries(context, report);
  if (!context.json)
    print_not_stored(context, report);
  // Last: the build is stored and reported even if this copy fails.
  if (auto written = write_output(options, report); !written) {
    print_error(fmt::format("{} {}\n", context.err.styled("kiln:", Style::kRed),
                            written.error().message));
    return kSomeFailed;
  }
  return exit_code_of(report);
}

}  // namespace

Run add_compile(OptionSet& cli) {
  auto options = std::make_shared<CompileOptions>();
  cli.argument("FILE", options->files,
               "A CUDA C++ source; - is standard input; several are linked",
               Presence::kRequired);
  add_arch_option(cli, options->architectures);
  add_driver_option(cli, options->driver);
  cli.option("-I", options->include_dirs, "DIR",
             "Search DIR for headers; may be repeated");
  cli.option("-D", options->defines, "NAME[=VALUE]", "Define a macro; may be repeated");
  cli.option("--option", options->options, "OPT",
             "Pass OPT on to NVRTC, e.g. --option --maxrregcount=64; may be repeated");
  cli.option("--name", options->names, "EXPR",
             "Instantiate and name EXPR of the first FILE, e.g. 'scale<float>'; may be "
             "repeated");
  cli.flag(
      "--as-nvrtc", options->as_nvrtc,
      "Compile as nvrtcCompileProgram does, and add nothing: no C++17, no folder of "
      "headers; FILE is the program's name");
  cli.option("--link", options->linked, "FILE",
             "Link FILE as well: a cubin, PTX, LTO-IR, object or archive; may be "
             "repeated");
  cli.option("--link-option", options->link_options, "OPT",
             "Pass OPT on to nvJitLink, e.g. --link-option=-Xptxas=-O1; may be "
             "repeated");
  cli.option("-o", options->output, "FILE",
             "Write the image to FILE, for one architecture");
  cli.setting("--timeout", "DURATION", "compile_timeout");
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
