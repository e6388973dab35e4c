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
  const std::uint64_t precompiled_limit = context.config.precompiled_limit_bytes;
  const auto precompiled = precompiled_store(context.config, *cache).totals();
  if (context.json) {
    print_json({{"entries", stats.totals.entries},
                {"bytes", stats.totals.bytes},
                {"limit_bytes", stats.limit_bytes},
                {"precompiled",
                 {{"entries", precompiled.entries},
                  {"bytes", precompiled.bytes},
                  {"limit_bytes", precompiled_limit}}},
                {"counters", stats.counters}});
    return 0;
  }
  print(fmt::format("{}\n{}, {} of {}\n", cache->layout().root().native(),
                    counted(stats.totals.entries, "entry", "entries"),
                    format_size(stats.totals.bytes), format_size(stats.limit_bytes)));
  if (const auto text = over_limit_text(stats); !text.empty())
    print(context.out.fitted(text + "\n"));
  if (precompiled.entries > 0)
    print(precompiled_text(precompiled, precompiled_limit) + "\n");
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
