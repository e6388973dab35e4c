// Remembers which jobs killed their workers, so that a hopeless source does not cost
// every caller its full time limit. In memory only: no failure on disk answers who asks
// later.

#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>

#include "codec/digest.h"
#include "compile/protocol/protocol.h"
#include "kiln/result.h"
#include "util/mutex.h"

namespace kiln::compile {

/// Thread safety: every member may be called from any thread.
class CrashHistory {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  static constexpr int kKillsBeforeRefusal = 2;
  static constexpr std::chrono::minutes kRefusedFor{10};

  explicit CrashHistory(Clock clock) : clock_(std::move(clock)) {}

  /// The last error of `job` if it is refused now. Costs one map look-up and, only if
  /// some job killed a worker recently, one SHA-256 of `job`.
  [[nodiscard]] std::optional<Error> refusal(const Request& job);

  /// Records that `job` killed its worker and that its caller gets `error`. Kills that
  /// are more than kRefusedFor apart do not add up.
  void record(const Request& job, const Error& error);

 private:
  struct Kills {
    int count = 0;
    std::chrono::steady_clock::time_point last;
    Error error;
  };

  void forget_old() KILN_REQUIRES(mutex_);

  const Clock clock_;
  Mutex mutex_;
  std::map<Digest, Kills> kills_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::compile
