// kiln warm: build what is missing before a job starts.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "ops/preset.h"
#include "request/manifest.h"
#include "request/selection.h"
#include "tools/architectures.h"
#include "tools/build_run.h"
#include "tools/catalog.h"
#include "tools/output/file_output.h"
#include "tools/presets.h"
#include "tools/verbs.h"
#include "util/log.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

struct WarmOptions {
  bool all = false;
  bool quick = false;
  std::vector<std::string> templates;
  std::vector<std::string> manifests;
  std::vector<std::string> presets;
  bool no_attention = false;
  ArchitectureOptions architectures;
  CatalogOptions catalog;
  std::string jobs;
  std::string time_limit;
  bool dry_run = false;
  bool fail_fast = false;
  std::string events;
};

/// A line of a manifest, which may name its own architecture.
struct WantedLine {
  request::ManifestEntry entry;
  std::string place;  // "kernels.jsonl:2"
};

/// What was selected.
struct WantedKernels {
  request::Selection selection;
  std::vector<WantedLine> lines;
  std::vector<ops::Preset> presets;
};

/// Checks a manifest line as far as is possible before anything is built.
Result<void> check_line(BuildService& service, const WantedLine& line,
                        const ArchitectureOptions& architectures) {
  Result<void> checked;
  if (auto prepared = service.prepare(line.entry.request); !prepared)
    checked = tl::unexpected(std::move(prepared).error());
  // With --arch the line's own has to be one of those, which are checked by themselves.
  if (checked && line.entry.architecture && !is_given(architectures)) {
    if (auto chosen = service.toolchains().choose(*line.entry.architecture); !chosen)
      checked = tl::unexpected(std::move(chosen).error());
  }
  if (checked)
    return {};
  // The name of a source is its place already.
  const std::string& message = checked.error().message;
  return fail(checked.error().code, message.starts_with(line.place + ": ")
                                        ? message
                                        : line.place + ": " + message);
}

/// What to build a line for: its own architecture, which --arch and --profile must then
/// name as well, else `asked`. Errors: kInvalidArgument.
Result<std::vector<device::BuildFor>> architectures_of(
    const WantedLine& line, const ArchitectureOptions& options,
    const std::vector<device::BuildFor>& asked) {
  if (!line.entry.architecture)
    return asked;
  std::vector<std::string> names;
  for (const device::BuildFor& each : asked) names.push_back(to_string(each));
  const std::string own = arch_name(*line.entry.architecture);
  if (is_given(options) && std::ranges::find(names, own) == names.end())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: this line has \"arch\": \"{}\", and {} is asked for; "
                            "leave one of the two out",
                            line.place, own, fmt::join(names, ", ")));
  return std::vector<device::BuildFor>{*line.entry.architecture};
}

Result<WantedKernels> select(BuildService& service, const WarmOptions& options) {
  WantedKernels wanted{request::Selection(service.catalog()), {}, {}};
  if (options.all)
    KILN_TRY(wanted.selection.add_all());
  if (options.quick)
    KILN_TRY(wanted.selection.add_quick());
  for (const std::string& text : options.templates)
    KILN_TRY(wanted.selection.add_template(text));
  for (const std::string& path : options.manifests) {
    auto lines = KILN_TRY(from_input(request::read_manifest(path)));
    if (lines.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: there is no request in it", path));
    }
    std::optional<Error> first;
    std::vector<std::size_t> others;
    for (request::ManifestEntry& line : lines) {
      const std::size_t number = line.line;
      auto place = fmt::format("{}:{}", path, number);
      wanted.lines.push_back({std::move(line), std::move(place)});
      auto checked = check_line(service, wanted.lines.back(), options.architectures);
      if (checked)
        continue;
      if (first)
        others.push_back(number);
      else
        first = std::move(checked).error();
    }
    if (first && !others.empty())
      first->message += fmt::format("; {} more of its lines are wrong: {}",
                                    others.size(), fmt::join(others, ", "));
    if (first)
      return tl::unexpected(*std::move(first));
  }
  for (const std::string& name : options.presets)
    wanted.presets.push_back(KILN_TRY(from_input(ops::find_preset(name))));
  if (!options.all && !options.quick && options.templates.empty() &&
      options.manifests.empty() && options.presets.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "say what to build: --all, --quick, --template NAME[:p=v,...], "
                "--preset NAME or --manifest FILE");
  }
  return wanted;
}

/// True if a request has no architecture of its own, as only manifest lines can have.
bool needs_architectures(const WantedKernels& wanted) {
  if (!wanted.selection.requests().empty() || !wanted.presets.empty())
    return true;
  return std::any_of(wanted.lines.begin(), wanted.lines.end(),
                     [](const WantedLine& line) { return !line.entry.architecture; });
}

/// What of each preset's model is built and what is not, so that nobody has to guess.
Result<void> add_attention(PlanService& plans, const Config& config,
                           const WantedKernels& wanted, const WarmOptions& options,
                           BuildReport& report) {
  for (const ops::Preset& preset : wanted.presets) {
    if (options.no_attention && preset.attention)
      print_error(fmt::format("{}: without attention\n", preset.name));
    else
      KILN_TRY(add_preset_plans(plans, config, preset, options.architectures, report));
    if (!preset.missing.empty())
      print_error(fmt::format("{}: not the whole model: {}\n", preset.name,
                              printable_lines(preset.missing)));
  }
  return {};
}

Result<BuildReport> list_items(BuildService& service, PlanService& plans,
                               const WarmOptions& options,
                               const std::stop_token& stop) {
  const WantedKernels wanted = KILN_TRY(select(service, options));
  std::vector<device::BuildFor> architectures;
  if (is_given(options.architectures) || needs_architectures(wanted))
    architectures = KILN_TRY(select_architectures(service, options.architectures));
  BuildReport report;
  for (const request::TemplateRequest& request : wanted.selection.requests()) {
    add_items(service, Request(request.kernel->name(), request.params.values()),
              architectures, report);
  }
  for (const device::BuildFor& build_for : architectures)
    KILN_TRY(add_preset_kernels(service, wanted.presets, !options.no_attention,
                                build_for, report));
  KILN_TRY(add_attention(plans, service.config(), wanted, options, report));
  for (const WantedLine& line : wanted.lines) {
    add_items(service, line.entry.request,
              KILN_TRY(architectures_of(line, options.architectures, architectures)),
              report, stop);
  }
  return report;
}

/// Records the NVRTC that built most of this warm, for the next job to choose.
void record_toolchain(BuildService& service, const BuildReport& report) {
  std::map<std::string, std::pair<std::size_t, const device::Toolchain*>> uses;
  for (std::size_t i = 0; i < report.items.size(); ++i) {
    const auto* keyed = std::get_if<KeyedRequest>(&report.items[i].keyed);
    if (keyed == nullptr || !report.entries[i].stored)
      continue;
    auto& use = uses[to_string(keyed->toolchain->toolchain.id)];
    ++use.first;
    use.second = &keyed->toolchain->toolchain;
  }
  const auto most = std::max_element(
      uses.begin(), uses.end(),
      [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
  if (most == uses.end() || service.cache().mode() != cache::Mode::kReadWrite)
    return;
  if (auto recorded = service.toolchains().record(*most->second.second); !recorded)
    log(LogLevel::kWarning,
        {"the toolchain is not recorded: ", recorded.error().message});
}

Result<int> run(Context& context, const WarmOptions& options) {
  Config config = context.config;
  config.template_dirs = template_folders(config, options.catalog);
  if (!options.jobs.empty()) {
    config.jobs = static_cast<unsigned>(
        KILN_TRY(parse_number("--jobs", options.jobs, {1, kMostJobs})));
  }
  if (!options.time_limit.empty())
    config.compile_timeout = KILN_TRY(parse_time_limit(options.time_limit));
  std::unique_ptr<EventLog> events;
  if (!options.events.empty()) {
    KILN_TRY(check_output_path("--events", options.events));
    events = KILN_TRY(EventLog::open(options.events));
  }
  const auto service = KILN_TRY(BuildService::open(
      config, {.stop = context.stop->token(), .make_root = !options.dry_run}));
  PlanService plans(*service);
  BuildReport report =
      KILN_TRY(list_items(*service, plans, options, context.stop->token()));
  print_never_asked_for(context, report);
  KILN_TRY(run_builds(context, *service,
                      {.jobs = service->jobs().get(),
                       .dry_run = options.dry_run,
                       .fail_fast = options.fail_fast,
                       .must_store = true,
                       .events = events.get(),
                       .plans = &plans,
                       .on_refusal = "; so Kiln's own kernel runs it"},
                      report));
  leave_out_refused(report);
  if (!options.dry_run)
    record_toolchain(*service, report);
  if (context.json)
    print_json(report_json(report));
  else
    print_report(context, report);
  return exit_code_of(report);
}

std::string preset_names() {
  std::vector<std::string_view> names;
  for (const ops::BuiltInPreset& preset : ops::built_in_presets())
    names.push_back(preset.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Run add_warm(OptionSet& cli) {
  auto options = std::make_shared<WarmOptions>();
  cli.flag("--all", options->all, "The default set of every kernel");
  cli.flag("--quick", options->quick, "A small part of it, to try things out");
  cli.option("--template", options->templates, "NAME[:p=v,...]",
             "A kernel or family, NAME or NAME:p=v,...; a parameter left out takes "
             "every value of the default set; may be repeated");
  cli.option(
      "--manifest", options->manifests, "FILE",
      "Requests as JSON Lines, contents inline; --arch must name the architecture "
      "of a line that has its own; may be repeated");
  cli.option("--preset", options->presets, "NAME|FILE",
             fmt::format("What training a model asks for: {}; or a file of your own, "
                         "NAME.toml; with --profile or a device present cuDNN's plans, "
                         "too; may be repeated",
                         preset_names()));
  cli.flag("--no-attention", options->no_attention,
           "Leave attention out of --preset: Kiln's kernels, and cuDNN's plans");
  add_arch_option(cli, options->architectures);
  add_profile_option(cli, options->architectures);
  add_catalog_options(cli, options->catalog);
  cli.option("--jobs", options->jobs, "N",
             "Builds at a time (default: the usable cores)");
  cli.option("--timeout", options->time_limit, "DURATION",
             "Time limit of one build: 90, 5m (default: 300)");
  cli.flag("--dry-run", options->dry_run, "Say what would be built; build nothing");
  cli.flag("--fail-fast", options->fail_fast, "Stop at the first failure");
  cli.option("--events", options->events, "FILE",
             "Append one JSON line to FILE as each build ends");
  return
      [options](Context& context) { return finish(context, run(context, *options)); };
}

}  // namespace kiln::tools
