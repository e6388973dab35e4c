// kiln warm: build what is missing before a job starts.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "tools/build_run.h"
#include "tools/open_cache.h"
#include "tools/presets.h"
#include "tools/remote/warm_exchange.h"
#include "tools/selection.h"
#include "tools/shard_option.h"
#include "tools/verbs.h"
#include "util/log.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

struct WarmOptions {
  SelectionOptions selection;
  bool dry_run = false;
  bool fail_fast = false;
  std::string shard;
  WarmExchangeOptions exchange;
};

/// Takes the items of other shards out of the report; without `shard` all of them. One
/// without a key fails in every shard.
std::vector<BuildItem> take_others(const std::optional<remote::Shard>& shard,
                                   BuildReport& report) {
  std::vector<BuildItem> others;
  std::set<Digest> seen;
  std::erase_if(report.items, [&](BuildItem& item) {
    const Digest* const key = key_of(item);
    if (key == nullptr || (shard && shard->owns(*key)))
      return false;
    if (seen.insert(*key).second)
      others.push_back(std::move(item));
    return true;
  });
  return others;
}

/// Takes the plans that cuDNN refused when it was to build them out of `report`, and
/// counts them: a job runs Kiln's kernels there.
void leave_out_refused(BuildReport& report) {
  for (std::size_t i = report.items.size(); i-- > 0;) {
    if (report.entries[i].verdict != BuildVerdict::kRefused)
      continue;
    ++*report.refused;
    report.items.erase(report.items.begin() + static_cast<std::ptrdiff_t>(i));
    report.entries.erase(report.entries.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

/// Records the NVRTC that built most of this warm, for the next job to choose.
void record_toolchain(BuildService& service, const BuildReport& report) {
  std::map<std::string, std::pair<std::size_t, const device::Toolchain*>> uses;
  for (std::size_t i = 0; i < report.items.size(); ++i) {
    const device::Toolchain* const chosen = chosen_toolchain(report.items[i]);
    if (chosen == nullptr || !report.entries[i].stored)
      continue;
    // Else it may be a hit of another toolchain that is recorded.
    if (service.config().no_jit &&
        !service.cache().describe(*key_of(report.items[i])).value_or(std::nullopt))
      continue;
    auto& use = uses[to_string(chosen->id)];
    ++use.first;
    use.second = chosen;
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

/// The settings of the service that builds.
Result<Config> service_config(const Context& context, const WarmOptions& options) {
  Config config = context.config;
  config.template_dirs = template_folders(config, options.selection.catalog);
  config.for_driver = KILN_TRY(parse_driver_option(options.selection.driver));
  if (options.exchange.push && config.remote.mode == "rw")
    config.remote.mode = "r";  // the exchange sends all that the service would
  return config;
}

void print_shard(const ShardChoice& choice, std::size_t elsewhere, bool pulls) {
  print_note(fmt::format("shard {}/{} ({}): {} of other shards {}\n",
                         choice.shard.index, choice.shard.count, choice.from, elsewhere,
                         pulls ? "are pulled" : "are left out"));
}

void print_outcome(const Context& context, const BuildReport& report,
                   const std::optional<ShardChoice>& choice, std::size_t elsewhere,
                   const WarmExchange& exchange) {
  if (!context.json)
    return print_report(context, report);
  auto document = report_json(report);
  if (choice)
    document["shard"] = {{"index", choice->shard.index},
                         {"count", choice->shard.count},
                         {"elsewhere", elsewhere}};
  exchange.add_to(document);
  print_json(document);
}

Result<std::unique_ptr<BuildService>> open_service(const Context& context,
                                                   const WarmOptions& options,
                                                   const Config& config,
                                                   const WarmExchange& exchange) {
  return open_to_build(config, {.stop = context.stop->token(),
                                .make_root = !options.dry_run,
                                .signers = exchange.signers(),
                                .warns_when_off = false});
}

Result<int> run(Context& context, const WarmOptions& options) {
  const Config config = KILN_TRY(service_config(context, options));
  std::optional<ShardChoice> choice;
  if (!options.shard.empty())
    choice = KILN_TRY(parse_shard(options.shard, process_environment()));
  auto opened = KILN_TRY(
      WarmExchange::open(context, options.exchange, config, choice.has_value()));
  const auto service = KILN_TRY(open_service(context, options, config, *opened));
  PlanService plans(*service, context.stop->token());
  const auto exchange = std::move(opened);  // destroyed before the cache that it reads
  const bool pulls = options.exchange.pull && !options.dry_run;
  auto listed = list_items(context, *service, plans, options.selection);
  if (!listed)
    return tl::unexpected(with_why_off(std::move(listed).error(), service->cache()));
  BuildReport report = *std::move(listed);
  KILN_TRY(check_skipped(context, report));
  report.driver = config.for_driver;
  print_toolchains(context, report);
  print_never_asked_for(context, report);
  BuildReport others;
  if (choice)
    others.items = take_others(choice->shard, report);
  else if (pulls)
    others.items = take_others(std::nullopt, report);
  const std::size_t elsewhere = choice ? others.items.size() : 0;
  if (choice)
    print_shard(*choice, elsewhere, pulls);
  exchange->start(service->cache());
  BuildRunOptions builds{.jobs = service->jobs().get(),
                         .dry_run = options.dry_run,
                         .fail_fast = options.fail_fast,
                         .must_store = true,
                         .on_success =
                             [&](const BuildItem& item, const BuildEntry& entry) {
                               if (!options.dry_run)
                                 exchange->send(item, entry);
                             },
                         .plans = &plans,
                         .on_refusal = "; so Kiln's own kernel runs the problem",
                         .lists_forbidden = context.verbose};
  KILN_TRY(run_builds(context, *service, builds, report));
  const bool goes_on = !context.stop->token().stop_requested() &&
                       !(options.fail_fast && exit_code_of(report) != kAllDone);
  if (pulls && goes_on) {
    builds.pulled = &exchange->fetch(context, service->cache(), others);
    KILN_TRY(run_builds(context, *service, builds, others));
    report.add(std::move(others));
  }
  leave_out_refused(report);
  if (!options.dry_run)
    record_toolchain(*service, report);
  const bool are_sent = exchange->finish();
  print_outcome(context, report, choice, elsewhere, *exchange);
  const int status = exit_code_of(report);
  return status == kAllDone && !are_sent ? kSomeFailed : status;
}

}  // namespace

Run add_warm(OptionSet& cli) {
  auto options = std::make_shared<WarmOptions>();
  add_selection_options(cli, options->selection);
  cli.option(
      "--shard", options->shard, "I/N|auto",
      "Build only part I of N, counted from 0, so that N machines share the work; "
      "auto: the task of a Slurm array, the node of a Slurm job, or the index of a "
      "Kubernetes Job with KILN_SHARDS");
  cli.group(kBuildGroup);
  cli.setting("--jobs", "N", "jobs");
  cli.setting("--timeout", "DURATION", "compile_timeout");
  cli.flag("--dry-run", options->dry_run,
           "Say how many kernels would be built; build nothing");
  cli.flag("--fail-fast", options->fail_fast, "Stop at the first failure");
  cli.group(kOutputGroup);
  cli.setting("--events", "FILE", "events",
              "Append one JSON line to FILE, or to a file in the folder FILE, as each "
              "build ends");
  cli.group(kFleetGroup);
  add_exchange_options(cli, options->exchange);
  cli.footer(
      "With --verbose each kernel that KILN_NO_JIT forbids to build is named, and not\n"
      "only counted.\n"
      "\n"
      "Examples:\n"
      "  kiln warm --preset llama-3-8b --arch 9.0     the kernels that train a model\n"
      "  kiln warm --manifest job.jsonl --arch native the requests of KILN_RECORD\n"
      "  kiln warm --all --arch 8.0,9.0 --dry-run     how much is missing of "
      "everything\n");
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
