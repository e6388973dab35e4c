// kiln stats: size of the cache, and what happened in it.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tools/open_cache.h"
#include "tools/output/counters.h"
#include "tools/output/entries.h"
#include "tools/output/file_output.h"
#include "tools/output/openmetrics.h"
#include "tools/verbs.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

struct StatsOptions {
  std::string format;
  std::string output = "-";
};

Result<void> check(const Context& context, const OptionSet& cli,
                   const StatsOptions& options) {
  if (cli.is_given("--format") && options.format != "openmetrics" &&
      options.format != "prometheus")
    return refuse("--format: '{}' is unknown; there are openmetrics and prometheus",
                  options.format);
  if (cli.is_given("--output") && options.format.empty())
    return refuse("--output goes with --format");
  if (context.json && !options.format.empty())
    return refuse("--json and --format are two formats; leave one of them out");
  return check_output_path("--output", options.output);
}

nlohmann::ordered_json kinds_json(const cache::KindTotals& kinds) {
  auto json = nlohmann::ordered_json::object();
  for (const auto& [kind, totals] : kinds)
    json[std::string(to_string(kind))] = {{"entries", totals.entries},
                                          {"bytes", totals.bytes}};
  return json;
}

/// The meanings are for people, and scripts that read the table know two columns.
void print_counters(const cache::Stats& stats, const Terminal& out) {
  if (stats.counters.empty())
    return;
  if (const auto rate = hit_rate_text(stats); !rate.empty())
    print(rate + "\n");
  std::vector<Column> columns{{"COUNTER"}, {"COUNT", Align::kRight}};
  if (out.is_terminal())
    columns.push_back({.title = "MEANING", .may_wrap = true});
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, count] : stats.counters)
    rows.push_back({name, std::to_string(count), std::string(counter_meaning(name))});
  print("\n" + format_table(columns, rows, out));
}

Result<int> run(Context& context, const OptionSet& cli, const StatsOptions& options) {
  KILN_TRY(check(context, cli, options));
  const bool is_metrics = !options.format.empty();  // of which one says what is missing
  const auto cache =
      KILN_TRY(is_metrics ? open_cache(context.config) : open_named_cache(context));
  const cache::Stats stats = KILN_TRY(cache->stats());
  if (is_metrics) {
    const std::string text =
        metrics_text(stats, cache->layout().root().native(), !cache->is_absent(),
                     options.format == "prometheus" ? MetricsFormat::kPrometheus
                                                    : MetricsFormat::kOpenMetrics);
    KILN_TRY(write_output_file(options.output, as_bytes(text)));
    return 0;
  }
  const cache::KindTotals kinds = KILN_TRY(cache->totals_by_kind());
  const auto seeds = cache->seeds() != nullptr ? cache->seeds()->states()
                                               : std::vector<cache::SeedState>();
  const std::uint64_t most_precompiled = precompiled_limit(context.config);
  const auto precompiled = precompiled_store(context.config, *cache).totals();
  if (context.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const cache::SeedState& seed : seeds) list.push_back(seed_json(seed));
    print_json({{"entries", stats.totals.entries},
                {"bytes", stats.totals.bytes},
                {"limit_bytes", stats.limit_bytes},
                {"kinds", kinds_json(kinds)},
                {"seeds", list},
                {"precompiled",
                 {{"entries", precompiled.entries},
                  {"bytes", precompiled.bytes},
                  {"limit_bytes", most_precompiled}}},
                {"counters", stats.counters}});
    return 0;
  }
  print(fmt::format("{}\n{}, {} of {}\n", cache->layout().root().native(),
                    counted(stats.totals.entries, "entry", "entries"),
                    format_size(stats.totals.bytes), format_size(stats.limit_bytes)));
  for (const auto& [kind, totals] : kinds) {
    if (kinds.size() > 1)
      print(fmt::format("{}: {}, {}\n", to_string(kind),
                        counted(totals.entries, "entry", "entries"),
                        format_size(totals.bytes)));
  }
  if (const auto text = over_limit_text(stats); !text.empty())
    print(context.out.fitted(text + "\n"));
  for (const cache::SeedState& seed : seeds)
    print(context.out.fitted(fmt::format("seed {}\n", seed_text(seed))));
  if (precompiled.bytes > 0)
    print(fmt::format("precompiled headers: {}\n",
                      precompiled_text(precompiled, most_precompiled)));
  print_counters(stats, context.out);
  return 0;
}

}  // namespace

Run add_stats(OptionSet& cli) {
  auto options = std::make_shared<StatsOptions>();
  cli.group(kOutputGroup);
  cli.option("--format", options->format, "openmetrics|prometheus",
             "For a collector of metrics; prometheus for node_exporter's textfiles");
  cli.option(
      "--output", options->output, "FILE",
      "With --format: replace FILE in one step, as a textfile collector needs it");
  cli.footer(
      "Examples:\n"
      "  kiln stats                                the entries, the limit, the counts\n"
      "  kiln stats --json                         for a script\n"
      "  kiln stats --format prometheus --output /var/lib/node_exporter/kiln.prom\n");
  return [options, cli](Context& context) { return run(context, cli, *options); };
}

}  // namespace kiln::tools
