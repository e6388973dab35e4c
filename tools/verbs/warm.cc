// kiln warm: build what is missing before a job starts.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "tools/build_run.h"
#include "tools/output/file_output.h"
#include "tools/presets.h"
#include "tools/selection.h"
#include "tools/shard_option.h"
#include "tools/verbs.h"
#include "util/log.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

struct WarmOptions {
  SelectionOptions selection;
  std::string jobs;
  std::string time_limit;
  bool dry_run = false;
  bool fail_fast = false;
  std::string events;
  std::string shard;
};

/// Leaves the items of other shards out and returns how many they are. One without a
/// key fails in every shard.
std::size_t keep_shard(const remote::Shard& shard, BuildReport& report) {
  std::set<Digest> others;
  std::erase_if(report.items, [&](const BuildItem& item) {
    const Digest* const key = key_of(item);
    if (key == nullptr || shard.owns(*key))
      return false;
    others.insert(*key);
    return true;
  });
  return others.size();
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
  config.template_dirs = template_folders(config, options.selection.catalog);
  config.for_driver = KILN_TRY(parse_driver_option(options.selection.driver));
  if (!options.jobs.empty()) {
    config.jobs = static_cast<unsigned>(
        KILN_TRY(parse_number("--jobs", options.jobs, {1, kMostJobs})));
  }
  if (!options.time_limit.empty())
    config.compile_timeout = KILN_TRY(parse_time_limit(options.time_limit));
  std::optional<ShardChoice> choice;
  if (!options.shard.empty())
    choice = KILN_TRY(parse_shard(options.shard, process_environment()));
  std::unique_ptr<EventLog> events;
  if (!options.events.empty()) {
    KILN_TRY(check_output_path("--events", options.events));
    events = KILN_TRY(EventLog::open(options.events));
  }
  const auto service =
      KILN_TRY(BuildService::open(config, {.stop = context.stop->token(),
                                           .make_root = !options.dry_run,
                                           .warns_when_off = false}));
  PlanService plans(*service);
  BuildReport report =
      KILN_TRY(list_items(context, *service, plans, options.selection));
  KILN_TRY(check_skipped(context, report));
  std::size_t elsewhere = 0;
  if (choice) {
    elsewhere = keep_shard(choice->shard, report);
    print_error(fmt::format("shard {}/{} ({}): {} of other shards are left out\n",
                            choice->shard.index, choice->shard.count, choice->from,
                            elsewhere));
  }
  report.driver = config.for_driver;
  print_toolchains(context, report);
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
  if (context.json) {
    auto document = report_json(report);
    if (choice)
      document["shard"] = {{"index", choice->shard.index},
                           {"count", choice->shard.count},
                           {"elsewhere", elsewhere}};
    print_json(document);
  } else {
    print_report(context, report);
  }
  return exit_code_of(report);
}

}  // namespace

Run add_warm(OptionSet& cli) {
  auto options = std::make_shared<WarmOptions>();
  add_selection_options(cli, options->selection);
  cli.option("--jobs", options->jobs, "N",
             "Builds at a time (default: the usable cores)");
  cli.option("--timeout", options->time_limit, "DURATION",
             "Time limit of one build: 90, 5m (default: 300)");
  cli.option(
      "--shard", options->shard, "I/N|auto",
      "Build only part I of N, counted from 0, so that N machines share the work; "
      "auto: the task of a Slurm array, the node of a Slurm job, or the index of a "
      "Kubernetes Job with KILN_SHARDS");
  cli.flag("--dry-run", options->dry_run, "Say what would be built; build nothing");
  cli.flag("--fail-fast", options->fail_fast, "Stop at the first failure");
  cli.option("--events", options->events, "FILE",
             "Append one JSON line to FILE as each build ends");
  return
      [options](Context& context) { return finish(context, run(context, *options)); };
}

}  // namespace kiln::tools
