// Fetches objects from remote caches into the cache.

#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include "cache/cache.h"
#include "tools/output/progress.h"
#include "tools/remote/remote_run.h"
#include "tools/remote/transfer_totals.h"
#include "tools/wanted.h"

namespace kiln::tools {

enum class Pulled : std::uint8_t {
  kNotReached,  // nothing more can be stored, or the program is stopped
  kMissing,     // no server has it
  kWasHere,     // in the cache, or a seed
  kFetched,     // and stored
  kFailed,
};

struct FetchReport {
  std::vector<Pulled> outcomes;      // one per object, in the same order
  std::vector<std::size_t> servers;  // likewise: the number of who sent it
  TransferTotals totals;

  [[nodiscard]] std::uint64_t count(Pulled outcome) const;
};

/// Fetches each of `wanted`, which all have a key, from the first server that has it.
/// For what is missing the servers are asked again and again until `wait` is over:
/// others are building it. An object that is missing in the end is no problem of the
/// totals.
[[nodiscard]] FetchReport fetch_objects(RemoteRun& run, cache::Cache& cache,
                                        std::span<const Wanted> wanted,
                                        std::chrono::milliseconds wait,
                                        Progress& progress);

}  // namespace kiln::tools
