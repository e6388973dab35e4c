// kiln stats: size of the cache, and what happened in it.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tools/open_cache.h"
#include "tools/output/entries.h"
#include "tools/verbs.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

Result<int> run(Context& context) {
  const auto cache = KILN_TRY(open_cache(context.config));
  const cache::Stats stats = KILN_TRY(cache->stats());
  const auto seeds = cache->seeds() != nullptr ? cache->seeds()->states()
                                               : std::vector<cache::SeedState>();
  if (context.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const cache::SeedState& seed : seeds) list.push_back(seed_json(seed));
    print_json({{"entries", stats.totals.entries},
                {"bytes", stats.totals.bytes},
                {"limit_bytes", stats.limit_bytes},
                {"seeds", list},
                {"counters", stats.counters}});
    return 0;
  }
  print(fmt::format("{}\n{}, {} of {}\n", cache->layout().root().native(),
                    counted(stats.totals.entries, "entry", "entries"),
                    format_size(stats.totals.bytes), format_size(stats.limit_bytes)));
  if (const auto text = over_limit_text(stats); !text.empty())
    print(context.out.fitted(text + "\n"));
  for (const cache::SeedState& seed : seeds)
    print(context.out.fitted(fmt::format("seed {}\n", seed_text(seed))));
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, count] : stats.counters)
    rows.push_back({name, std::to_string(count)});
  if (!rows.empty())
    print(fmt::format("\n{}", format_table({{"COUNTER"}, {"COUNT", Align::kRight}},
                                           rows, context.out)));
  return 0;
}

}  // namespace

Run add_stats(OptionSet& /*cli*/) {
  return [](Context& context) { return finish(context, run(context)); };
}

}  // namespace kiln::tools
