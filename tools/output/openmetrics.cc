#include "tools/output/openmetrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace kiln::tools {
namespace {

void add_gauge(std::string& text, std::string_view name, std::string_view unit,
               std::uint64_t value) {
  text += fmt::format("# TYPE {} gauge\n", name);
  if (!unit.empty())
    text += fmt::format("# UNIT {} {}\n", name, unit);
  text += fmt::format("{} {}\n", name, value);
}

/// Of the counters of the cache, which tier has answered a get.
std::string_view tier_of(std::string_view counter) {
  if (counter == "hits")
    return "disk";
  if (counter == "seed_hits")
    return "seed";
  if (counter == "compiled")
    return "build";
  return {};
}

std::string_view label_of(std::string_view prefix) {
  return prefix == "publish_refused" ? "errno" : "check";
}

}  // namespace

std::string openmetrics_text(const cache::Stats& stats) {
  std::string text;
  add_gauge(text, "kiln_entries", "", stats.totals.entries);
  add_gauge(text, "kiln_size_bytes", "bytes", stats.totals.bytes);
  add_gauge(text, "kiln_limit_bytes", "bytes", stats.limit_bytes);
  text +=
      "# TYPE kiln_gets counter\n# HELP kiln_gets Requests that each tier has "
      "answered.\n";
  const auto seeds = stats.counters.find("seed_hits");
  for (const auto& [name, count] : stats.counters) {
    const auto tier = tier_of(name);
    if (tier.empty())
      continue;
    // Hits are those of disk and seeds together.
    const std::uint64_t others =
        name == "hits" && seeds != stats.counters.end() ? seeds->second : 0;
    text += fmt::format("kiln_gets_total{{tier=\"{}\"}} {}\n", tier,
                        count - std::min(others, count));
  }
  std::string_view family;
  for (const auto& [name, count] : stats.counters) {
    if (!tier_of(name).empty())
      continue;
    const std::string_view whole = name;
    const std::size_t dot = std::min(whole.find('.'), whole.size());
    const std::string_view prefix = whole.substr(0, dot);
    // A dot sorts before every other character of a name, so a family is in one place.
    if (prefix != family)
      text += fmt::format("# TYPE kiln_{} counter\n", prefix);
    family = prefix;
    text += fmt::format("kiln_{}_total", prefix);
    if (dot < whole.size())
      text += fmt::format("{{{}=\"{}\"}}", label_of(prefix), whole.substr(dot + 1));
    text += fmt::format(" {}\n", count);
  }
  return text + "# EOF\n";
}

}  // namespace kiln::tools
