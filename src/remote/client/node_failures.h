// What the processes of a machine have found out about a server, so that a dead one
// costs the machine three waits, and not each of its processes in turn. Files beside
// the locks, which save waits alone: without them each process finds out for itself.

#pragma once

#include <cstdint>
#include <string>

#include "remote/breaker.h"
#include "remote/policy.h"
#include "util/own_path.h"

namespace kiln::remote {

/// Thread safety: every method may run concurrently, also in several processes; of two
/// failures at one moment one may be lost.
class NodeFailures {
 public:
  static constexpr int kFailuresToRest = Breaker::kFailuresToOpen;
  static constexpr Duration kRest = Breaker::kFirstOpening;

  /// An empty folder: nothing is known and kept.
  explicit NodeFailures(OwnFolder folder) : folder_(std::move(folder)) {}

  /// How many requests have failed in a row, and whether the server is left alone for
  /// that: for 30 s after the last of three or more.
  struct Known {
    std::uint64_t failures = 0;
    bool rests = false;
  };
  [[nodiscard]] Known find(const std::string& server, TimePoint now) const;
  void add(const std::string& server, TimePoint now) const;
  /// It works again.
  void clear(const std::string& server) const;

 private:
  const OwnFolder folder_;
};

}  // namespace kiln::remote
