#include "tools/output/openmetrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "remote/client/servers.h"
#include "tools/output/counters.h"
#include "util/text.h"

namespace kiln::tools {
namespace {

/// A value of a label.
std::string quoted(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '"' || c == '\\')
      text += '\\';
    text += c == '\n' ? "\\n" : std::string(1, c);
  }
  return fmt::format("\"{}\"", text);
}

class Writer {
 public:
  Writer(MetricsFormat format, std::string_view cache)
      : format_(format), cache_(fmt::format("cache={}", quoted(cache))) {}

  /// Each has its HELP: node_exporter would make one up of the file's name, and two
  /// files with the same family would disagree.
  void begin(std::string_view family, std::string_view type, std::string_view help,
             std::string_view unit = {}) {
    const bool is_open = format_ == MetricsFormat::kOpenMetrics;
    const std::string name =
        fmt::format("kiln_{}{}", family, type == "counter" && !is_open ? "_total" : "");
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name,
                         help.empty() ? family : help, name, type);
    if (is_open && !unit.empty())
      text_ += fmt::format("# UNIT {} {}\n", name, unit);
  }
  /// `labels`: "a=\"1\",b=\"2\"" or "".
  template <typename Value>
  void add(std::string_view name, std::string_view labels, const Value& value) {
    text_ += fmt::format("kiln_{}{{{}{}{}}} {}\n", name, cache_,
                         labels.empty() ? "" : ",", labels, value);
  }
  void add_gauge(std::string_view name, std::string_view help, std::uint64_t value,
                 std::string_view unit = {}) {
    begin(name, "gauge", help, unit);
    add(name, "", value);
  }
  std::string end() && {
    return std::move(text_) + (format_ == MetricsFormat::kOpenMetrics ? "# EOF\n" : "");
  }

 private:
  const MetricsFormat format_;
  const std::string cache_;
  std::string text_;
};

/// Of the counters of the cache, which tier has answered a get.
std::string_view tier_of(std::string_view counter) {
  using Row = std::pair<std::string_view, std::string_view>;
  static constexpr Row kTiers[]{{"memory_hits", "memory"},
                                {"hits", "disk"},
                                {"seed_hits", "seed"},
                                {"remote_hits", "remote"},
                                {"compiled", "build"}};
  const auto* const found = std::ranges::find(kTiers, counter, &Row::first);
  return found == std::end(kTiers) ? "" : found->second;
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

/// `method="get",result="hit",server="c:80"`, of "get.hit.c:80".
std::string labels_text(const Family& family, std::string_view values) {
  std::vector<std::string> parts;
  for (const std::string_view label : family.labels) {
    const bool is_last = parts.size() + 1 == family.labels.size();
    parts.push_back(
        fmt::format("{}={}", label, quoted(is_last ? values : next_part(values, "."))));
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

constexpr std::string_view kSeconds = "remote_seconds.";
constexpr const char* kMicroseconds = "remote_microseconds";

/// How long requests to remotes take, as a histogram.
void add_seconds(Writer& to, const cache::Stats& stats) {
  if (std::ranges::none_of(stats.counters, [](const auto& each) {
        return std::string_view(each.first).starts_with(kSeconds);
      }))
    return;
  to.begin("remote_seconds", "histogram", "How long requests to remotes took",
           "seconds");
  std::uint64_t sum = 0;
  for (const std::string_view bound : remote::kSecondsBuckets) {
    sum += count_of(stats, fmt::format("{}{}", kSeconds, bound));
    to.add("remote_seconds_bucket",
           fmt::format("le=\"{}\"", bound == "inf" ? "+Inf" : bound), sum);
  }
  const std::uint64_t microseconds = count_of(stats, kMicroseconds);
  to.add("remote_seconds_sum", "",
         fmt::format("{}.{:06}", microseconds / 1'000'000, microseconds % 1'000'000));
  to.add("remote_seconds_count", "", sum);
}

}  // namespace

std::string metrics_text(const cache::Stats& stats, std::string_view root,
                         bool is_there, MetricsFormat format) {
  Writer to(format, root);
  to.add_gauge("cache_present", "Whether there is a cache", is_there ? 1 : 0);
  to.add_gauge("entries", "Objects in the cache", stats.totals.entries);
  to.add_gauge("size_bytes", "Size of the objects in the cache", stats.totals.bytes,
               "bytes");
  to.add_gauge("limit_bytes", "Limit of the cache", stats.limit_bytes, "bytes");
  to.begin("gets", "counter", "Requests that each tier has answered");
  for (const auto& [name, count] : stats.counters) {
    const auto tier = tier_of(name);
    if (tier.empty())
      continue;
    // Hits are those of all tiers together.
    std::uint64_t left = count;
    if (name == "hits") {
      for (const char* others : {"seed_hits", "remote_hits"})
        left -= std::min(count_of(stats, others), left);
    }
    to.add("gets_total", fmt::format("tier=\"{}\"", tier), left);
  }
  add_seconds(to, stats);
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
      to.begin(prefix, "counter", counter_meaning(prefix));
    last = prefix;
    to.add(fmt::format("{}_total", prefix),
           family == nullptr ? "" : labels_text(*family, whole.substr(dot + 1)), count);
  }
  return std::move(to).end();
}

}  // namespace kiln::tools
