// kiln compile FILE.cu: compiles a user's source into the cache.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "build/artifact.h"
#include "compile/worker/compile_log.h"
#include "tools/architectures.h"
#include "tools/build_run.h"
#include "tools/output/file_output.h"
#include "tools/source_options.h"
#include "tools/verbs.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

struct CompileOptions {
  SourceFileOptions source;
  ArchitectureOptions architectures;
  std::string driver;
  std::string output;
};

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
    return refuse("-o - and --json both want standard output");
  const Request request = KILN_TRY(make_request(context, options.source));
  const auto service = KILN_TRY(open_to_build(config, {.stop = context.stop->token()}));
  // Report wrong options before looking at the architectures.
  KILN_TRY(from_input(service->prepare(request)));
  const auto architectures =
      KILN_TRY(select_architectures(*service, options.architectures));
  if (!options.output.empty() && architectures.size() != 1) {
    return refuse("-o writes one image, and {} architectures are asked for",
                  architectures.size());
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
  cli.argument(
      "FILE", options->source.files,
      "A CUDA C++ source, or PTX as NAME.ptx; - is standard input; several are "
      "linked",
      Presence::kRequired);
  add_arch_option(cli, options->architectures);
  add_driver_option(cli, options->driver);
  cli.group(kBuildGroup);
  add_source_options(cli, options->source);
  cli.setting("--timeout", "DURATION", "compile_timeout");
  cli.group(kOutputGroup);
  cli.option("-o", options->output, "FILE",
             "Write the image to FILE, for one architecture");
  cli.footer(
      "Examples:\n"
      "  kiln compile scale.cu --arch 8.0,9.0 --name 'scale<float>'\n"
      "  kiln compile scale.cu --arch 9.0 --std c++20 -I include -o scale.cubin\n"
      "  kiln compile - --arch compute_90 -o - < scale.cu     PTX on stdout\n");
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
