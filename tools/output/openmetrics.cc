#include "tools/output/openmetrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "remote/client/servers.h"

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
  if (counter == "memory_hits")
    return "memory";
  if (counter == "hits")
    return "disk";
  if (counter == "seed_hits")
    return "seed";
  if (counter == "remote_hits")
    return "remote";
  if (counter == "compiled")
    return "build";
  return {};
}

/// A family of counters whose names have more parts than that of the family.
struct Family {
  std::string_view name;
  std::vector<std::string_view> labels;  // the last has all the rest, dots included
};

const Family* family_of(std::string_view name) {
  static const auto* const families =
      new std::vector<Family>{{"corrupt", {"check"}},
                              {"publish_refused", {"errno"}},
                              {"remote_breaker_open", {"server"}},
                              {"remote_bytes", {"direction"}},
                              {"remote_rejected", {"check"}},
                              {"remote_requests", {"method", "result", "server"}}};
  const auto found = std::ranges::find(*families, name, &Family::name);
  return found == families->end() ? nullptr : &*found;
}

/// `{method="get",result="hit",server="c:80"}`, of "get.hit.c:80".
std::string labels_text(const Family& family, std::string_view values) {
  std::vector<std::string> parts;
  for (const std::string_view label : family.labels) {
    const bool is_last = parts.size() + 1 == family.labels.size();
    const std::size_t end =
        is_last ? values.size() : std::min(values.find('.'), values.size());
    parts.push_back(fmt::format("{}=\"{}\"", label, values.substr(0, end)));
    values.remove_prefix(std::min(end + 1, values.size()));
  }
  return fmt::format("{{{}}}", fmt::join(parts, ","));
}

constexpr std::string_view kSeconds = "remote_seconds.";
constexpr const char* kMicroseconds = "remote_microseconds";

/// How long requests to remotes take, as a histogram.
void add_seconds(std::string& text,
                 const std::map<std::string, std::uint64_t>& counts) {
  const auto count_of = [&](const std::string& name) {
    const auto found = counts.find(name);
    return found == counts.end() ? 0 : found->second;
  };
  std::string samples;
  std::uint64_t sum = 0;
  for (const std::string_view bound : remote::kSecondsBuckets) {
    sum += count_of(fmt::format("{}{}", kSeconds, bound));
    samples += fmt::format("kiln_remote_seconds_bucket{{le=\"{}\"}} {}\n",
                           bound == "inf" ? "+Inf" : bound, sum);
  }
  if (sum == 0)
    return;
  text += "# TYPE kiln_remote_seconds histogram\n# UNIT kiln_remote_seconds seconds\n" +
          samples;
  text += fmt::format(
      "kiln_remote_seconds_sum {}.{:06}\nkiln_remote_seconds_count {}\n",
      count_of(kMicroseconds) / 1'000'000, count_of(kMicroseconds) % 1'000'000, sum);
}

}  // namespace

std::string openmetrics_text(const cache::Stats& stats, bool is_there) {
  std::string text;
  add_gauge(text, "kiln_cache_present", "", is_there ? 1 : 0);
  add_gauge(text, "kiln_entries", "", stats.totals.entries);
  add_gauge(text, "kiln_size_bytes", "bytes", stats.totals.bytes);
  add_gauge(text, "kiln_limit_bytes", "bytes", stats.limit_bytes);
  text +=
      "# TYPE kiln_gets counter\n# HELP kiln_gets Requests that each tier has "
      "answered.\n";
  const auto count_of = [&](const char* name) {
    const auto found = stats.counters.find(name);
    return found == stats.counters.end() ? 0 : found->second;
  };
  for (const auto& [name, count] : stats.counters) {
    const auto tier = tier_of(name);
    if (tier.empty())
      continue;
    // Hits are those of all tiers together.
    std::uint64_t left = count;
    if (name == "hits") {
      for (const char* others : {"seed_hits", "remote_hits"})
        left -= std::min(count_of(others), left);
    }
    text += fmt::format("kiln_gets_total{{tier=\"{}\"}} {}\n", tier, left);
  }
  add_seconds(text, stats.counters);
  std::string_view last;
  for (const auto& [name, count] : stats.counters) {
    if (!tier_of(name).empty() || name.starts_with(kSeconds) || name == kMicroseconds)
      continue;
    const std::string_view whole = name;
    const std::size_t dot = std::min(whole.find('.'), whole.size());
    const Family* const family = family_of(whole.substr(0, dot));
    const std::string_view prefix = family == nullptr ? whole : family->name;
    if (prefix.find('.') != std::string_view::npos)
      continue;  // of a later version
    // A dot sorts before every other character of a name, so a family is in one place.
    if (prefix != last)
      text += fmt::format("# TYPE kiln_{} counter\n", prefix);
    last = prefix;
    text += fmt::format(
        "kiln_{}_total{} {}\n", prefix,
        family == nullptr ? "" : labels_text(*family, whole.substr(dot + 1)), count);
  }
  return text + "# EOF\n";
}

}  // namespace kiln::tools
