// Tracks a build's phase and time, and makes the error of a build that was stopped.

#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "compile/protocol/job.h"
#include "compile/protocol/link_job.h"
#include "compile/protocol/plan_job.h"
#include "kiln/result.h"
#include "util/own_path.h"

namespace kiln::compile {

/// Called at the start of each phase, on the thread that called compile().
using ProgressCallback = std::function<void(BuildPhase)>;

/// Thread safety: one thread.
class BuildWatch {
 public:
  using Clock = std::chrono::steady_clock;

  explicit BuildWatch(ProgressCallback on_phase) : on_phase_(std::move(on_phase)) {}

  void enter(BuildPhase phase) {
    phase_ = phase;
    if (on_phase_)
      on_phase_(phase);
  }
  /// The time limit starts here: time spent queued does not count.
  void start_clock() { begin_ = Clock::now(); }

  /// What the worker had of the processors since start_clock().
  void had(std::chrono::nanoseconds processor_time) {
    share_ = std::chrono::duration<double>(processor_time) / (Clock::now() - begin_);
  }

  [[nodiscard]] BuildPhase phase() const { return phase_; }
  [[nodiscard]] Clock::time_point begin() const { return begin_; }
  [[nodiscard]] std::chrono::milliseconds elapsed() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin_);
  }
  /// Of a core, of the time since start_clock(); nullopt: unknown.
  [[nodiscard]] std::optional<double> share() const { return share_; }

 private:
  const ProgressCallback on_phase_;
  BuildPhase phase_ = BuildPhase::kQueued;
  Clock::time_point begin_ = Clock::now();
  std::optional<double> share_;
};

/// "the build of scaled_softmax_fwd for sm_90": how messages begin.
[[nodiscard]] std::string build_name(const CompileJob& job);
[[nodiscard]] std::string build_name(const PlanJob& job);
[[nodiscard]] std::string build_name(const LinkJob& job);

/// The error of a build that was stopped or whose worker died. It names the build, the
/// elapsed time, the phase, the limit, and where the job was saved in `reproductions`
/// (empty: it is not saved). `job` has its limits filled in.
template <typename Job>
[[nodiscard]] Error ended_build(const Error& cause, const Job& job,
                                const BuildWatch& watch,
                                const OwnFolder& reproductions);

}  // namespace kiln::compile
