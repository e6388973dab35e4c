// Remote or build: which is started when, and whose result is taken.

#pragma once

#include <cstdint>

#include "remote/policy.h"

namespace kiln::remote {

/// One get. The remote is asked at once and waited for until `wait` is over or it has
/// nothing; then the build runs beside it. The first result wins, and the other is
/// cancelled, so a get takes at most `wait` longer than a build.
/// Thread safety: none; its owner has a lock.
class Hedge {
 public:
  enum class Build : std::uint8_t {
    kAllowed,
    kForbidden,  // KILN_NO_JIT: the remote has its own time limits
  };

  Hedge(TimePoint now, Duration wait, Build build)
      : build_at_(now + wait), build_(build) {}

  enum class Step : std::uint8_t {
    kWait,        // until deadline(), or for what runs
    kStartBuild,  // and go on waiting
    kTakeRemote,  // and cancel the build, if it runs
    kTakeBuild,   // or its error; and cancel the remote, if it runs
    kGiveUp,      // the remote has nothing, and nothing is built
  };

  /// When on_time() wants to be called; TimePoint::max() while there is nothing to do.
  [[nodiscard]] TimePoint deadline() const;
  [[nodiscard]] Step on_time(TimePoint now) {
    return now >= deadline() ? start_build() : Step::kWait;
  }
  /// The remote has ended: with a verified object, or without.
  [[nodiscard]] Step on_remote(bool is_hit);

  enum class BuildEnd : std::uint8_t {
    kEnded,       // a result, or the source's own error: the answer
    kImpossible,  // this machine cannot build it: only the remote may help
  };
  [[nodiscard]] Step on_build(BuildEnd end);

  /// The remote still runs and its answer is not wanted any more, since a build that
  /// ran beside it has ended: a failure of the server.
  [[nodiscard]] bool is_overtaken() const { return is_overtaken_; }

 private:
  [[nodiscard]] Step start_build();

  const TimePoint build_at_;
  const Build build_;
  bool is_building_ = false;
  bool has_built_ = false;  // in vain: impossible
  bool has_remote_ended_ = false;
  bool is_overtaken_ = false;
};

}  // namespace kiln::remote
