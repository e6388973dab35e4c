#include "tools/output/counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kiln::tools {

std::string_view counter_meaning(std::string_view name) {
  using Row = std::pair<std::string_view, std::string_view>;
  static constexpr Row kMeanings[]{
      {"already_there", "results that another process had stored first"},
      {"build_refused", "builds not started: the source killed two workers"},
      {"compile_failed", "builds that the compiler refused"},
      {"compiled", "builds"},
      {"corrupt", "damaged objects found, by the check that failed"},
      {"descriptors_lost", "descriptors that the host program closed in use"},
      {"evicted", "objects removed for the size limit"},
      {"hits", "look-ups that found an object, seeds and remotes included"},
      {"index_failed", "queries of the index that failed"},
      {"index_rebuilt", "times that the index was made anew"},
      {"inputs_not_as_keyed", "builds not stored: a header was not in the key"},
      {"lock_bypassed", "builds without a lock: locks do not work here"},
      {"lock_waited", "waits for a build of another process"},
      {"memory_hits", "kernels that the process had loaded already"},
      {"misses", "look-ups that found nothing on this machine"},
      {"nondeterministic", "builds that differ from the stored object"},
      {"pch_made", "precompiled headers made"},
      {"pch_refused", "precompiled headers that could not be made or used"},
      {"pch_used", "compiles with a precompiled header"},
      {"publish_refused", "results that could not be stored, by the error"},
      {"published", "results stored"},
      {"quarantine_swept", "old files removed from quarantine"},
      {"quarantined", "objects moved to quarantine"},
      {"remote_breaker_open", "times that a remote was left alone, after failures"},
      {"remote_bytes", "bytes sent to remotes and received"},
      {"remote_hits", "hits on a remote"},
      {"remote_microseconds", "time of all requests to remotes"},
      {"remote_rejected", "objects of remotes that failed a check"},
      {"remote_requests", "requests to remotes, by method, result and server"},
      {"remote_seconds", "requests to remotes that took up to so many seconds"},
      {"seed_hits", "hits in a seed"},
      {"seed_refused", "seeds, or objects in a seed, that cannot be used"},
      {"slot_holder_ignored", "builders without a heartbeat that nobody waits for"},
      {"temporaries_swept", "files of crashed processes removed"},
      {"toolchain_not_as_keyed", "builds not stored: another compiler was loaded"},
      {"unreadable", "objects that could not be read"},
      {"untrusted", "files refused, since another user can write them"},
      {"uploads_dropped", "uploads that were not done"},
      {"worker_crashed", "builds whose worker died"},
      {"worker_killed", "builds over their limit of time or memory"},
  };
  const auto* const found =
      std::ranges::find(kMeanings, name.substr(0, name.find('.')), &Row::first);
  return found == std::end(kMeanings) ? "" : found->second;
}

std::uint64_t count_of(const cache::Stats& stats, const std::string& name) {
  const auto found = stats.counters.find(name);
  return found == stats.counters.end() ? 0 : found->second;
}

std::string hit_rate_text(const cache::Stats& stats) {
  const std::uint64_t hits = count_of(stats, "hits");
  std::uint64_t misses = count_of(stats, "misses");
  // What a remote had was a miss here before.
  misses -= std::min(misses, count_of(stats, "remote_hits"));
  if (hits + misses == 0)
    return "";
  constexpr double kPercent = 100;
  // Rounded down: 100 % are all of them.
  return fmt::format("hits: {} % of {} look-ups",
                     static_cast<int>(kPercent * static_cast<double>(hits) /
                                      static_cast<double>(hits + misses)),
                     hits + misses);
}

}  // namespace kiln::tools
