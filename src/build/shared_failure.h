// Shares a failed build's error with the processes that waited for it, so that they do
// not build it again. A later request ignores it.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "cache/owned_range.h"
#include "codec/digest.h"
#include "kiln/result.h"
#include "util/own_path.h"

namespace kiln {

/// What a build's failure depends on besides its key.
struct BuildConditions {
  std::chrono::milliseconds time_limit{};
  std::uint64_t memory_limit_bytes = 0;
  std::string environment{};  // the worker's variables that change what is loaded
};

/// Files in `<lock folder>/failed`, one for each key; the newest 16 stay, for a minute.
/// They only save work: a missing, damaged or foreign file is no answer. A time-out
/// needs none: the lock's record says it.
/// Thread safety: every method may run concurrently, also in several processes.
class SharedFailures {
 public:
  /// An empty folder: nothing is shared. `conditions` are those of this process's
  /// builds.
  SharedFailures(OwnFolder folder, BuildConditions conditions)
      : folder_(std::move(folder)), conditions_(std::move(conditions)) {}

  /// Call it before the builder's lock is released. Leaves nothing for errors that
  /// concern this process alone, for example that it was cancelled.
  /// `time_limit`: of this build; nullopt: that of the conditions.
  void leave(const Digest& key, const cache::OwnerRecord& builder, const Error& error,
             std::optional<std::chrono::milliseconds> time_limit = {}) const;

  /// The error of `builder`'s build if ours would fail the same way: with the same
  /// environment of workers and, for an error of the limits, the same limits.
  [[nodiscard]] std::optional<Error> find(
      const Digest& key, const cache::OwnerRecord& builder,
      std::optional<std::chrono::milliseconds> time_limit = {}) const;

 private:
  /// What a failure with this code depends on: limits change no diagnostics.
  [[nodiscard]] std::string conditions(
      ErrorCode code, std::optional<std::chrono::milliseconds> time_limit) const;

  const OwnFolder folder_;
  const BuildConditions conditions_;
};

}  // namespace kiln
