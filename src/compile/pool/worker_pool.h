// Compiles in child processes, at most N at a time. Each build is bounded in time and
// memory, a crash costs one worker, and a job that keeps killing workers is refused.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "compile/pool/build_watch.h"
#include "compile/pool/cores.h"
#include "compile/pool/worker_memory.h"
#include "compile/pool/worker_path.h"
#include "compile/protocol/job.h"
#include "compile/protocol/plan_job.h"
#include "compile/protocol/protocol.h"
#include "kiln/result.h"
#include "util/lazy_count.h"
#include "util/own_path.h"

namespace kiln::compile {

/// Acquires a machine-wide slot; the returned object holds it until destroyed. Called
/// on the thread that called compile(); must return soon after a stop is requested.
using AcquireSlot = std::function<Result<std::shared_ptr<void>>(std::stop_token)>;

/// The right to run one build at a time: a place in the pool and a slot of the machine.
using Turn = std::shared_ptr<void>;

struct PoolOptions {
  LazyCount max_workers = LazyCount(usable_cores);  // builds at a time
  unsigned max_idle = 0;  // workers that wait for the next build; 0: max_workers
  WorkerSearch worker;
  std::chrono::milliseconds time_limit = kDefaultTimeLimit;
  std::uint64_t memory_limit_bytes = kDefaultMemoryLimit;
  AcquireSlot acquire_slot;    // empty: no machine-wide bound
  OwnFolder reproductions;     // `<cache root>/repro`; empty: none are saved
  bool saves_as_nvrtc = true;  // those of as_nvrtc jobs, too
  /// Workers may make files in its folder kScratchName; both are created with the first
  /// worker. Empty: nowhere.
  OwnFolder scratch;
  /// Called on the caller's thread for each job that is refused because it killed its
  /// workers before.
  std::function<void()> on_refused;
  /// Extra "NAME=value" entries for a worker; they override worker_environment().
  std::vector<std::string> environment;
  /// Counts what the workers hold. For tests; null: WorkerMemory::of_process().
  WorkerMemory* memory = nullptr;
  /// A longer job message is an error. For tests: the protocol has its own limit.
  std::uint64_t max_job_bytes = kMaxPayloadBytes;
  /// For tests of the ten-minute refusal. Empty: steady_clock::now.
  std::function<std::chrono::steady_clock::time_point()> clock;
};

/// The part of this process's environment that a worker gets: a short list that says
/// why at each variable. No token, key or proxy of the host, and nothing that NVRTC,
/// nvJitLink or a driver takes orders from.
[[nodiscard]] std::vector<std::string> worker_environment();

/// Thread safety: every member may be called from any thread.
///
/// Slots. A build holds a machine slot from before its worker is started or reused
/// until the build has ended. An idle worker holds no slot (it costs about 75 MB of
/// memory and no core). So N builds need exactly N slots, and a pool that was busy does
/// not starve other processes.
///
/// One thread of the pool starts workers on demand. They are reused, last in first out,
/// for the same NVRTC paths; at most max_workers exist, and those that describe().
///
/// Fork. In a forked child the pool starts afresh from the same options: it does not
/// touch the parent's workers or wait for the parent's locks. `acquire_slot` must be
/// safe after a fork too.
///
/// Destruction cancels running builds (they return kCancelled), kills every worker and
/// does not wait for NVRTC.
class WorkerPool {
 public:
  explicit WorkerPool(PoolOptions options);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool();

  /// Builds `job`. Blocks without a limit while queued, then for at most the time limit
  /// plus a few seconds. A stop ends a queued or running build within about 50 ms.
  /// Errors, after each of which the pool serves the next request:
  ///   kCompileFailed    NVRTC's diagnostics, whole
  ///   kInvalidArgument  an option NVRTC does not know, a relative NVRTC path
  ///   kTimeout          phase, elapsed time, saved reproduction; the worker was killed
  ///   kResourceLimit    over the memory limit, by our watch or by NVRTC's own words
  ///   kWorkerCrashed    the signal or exit code, last words, saved reproduction; after
  ///                     a signal from outside only if a second try, beside no other
  ///                     build of this pool, ended like this, too
  ///   kCancelled        by `stop` or by the pool's destruction
  ///   kUnavailable      no worker, a worker of another build, no such NVRTC
  /// A job that killed its worker twice gets its last error again, without a build, for
  /// ten minutes from then; a job with other limits is another job, and a signal from
  /// outside does not count.
  [[nodiscard]] Result<CompileOutput> compile(const CompileJob& job,
                                              std::stop_token stop,
                                              const ProgressCallback& on_phase = {},
                                              const Turn& turn = nullptr);

  /// Waits as compile() does before it builds, for who decides only then what to
  /// compile, or compiles more than once. Destroyed before the pool. Errors:
  /// kCancelled; those of compile() for a job that killed its worker twice.
  [[nodiscard]] Result<Turn> wait_turn(const CompileJob& job, std::stop_token stop,
                                       const ProgressCallback& on_phase = {});

  /// Makes one cubin of several objects. Blocks and fails as compile() does.
  [[nodiscard]] Result<CompileOutput> link(const LinkJob& job, std::stop_token stop,
                                           const ProgressCallback& on_phase = {});

  /// Builds an execution plan, or finds out why there is none: a refusal is no error.
  /// For a pool of plan workers. Blocks and fails as compile() does.
  [[nodiscard]] Result<PlanOutput> build_plan(const PlanJob& job, std::stop_token stop,
                                              const ProgressCallback& on_phase = {});

  /// Asks a worker for the version and architectures of the NVRTC at these paths. Waits
  /// for no build. Errors: as compile().
  [[nodiscard]] Result<ToolchainDescription> describe(const NvrtcPaths& nvrtc,
                                                      std::stop_token stop = {});
  /// Asks a plan worker, which ends then, whether a cuDNN can be called, and what it
  /// is. Waits for no build. Errors: as compile(); kUnavailable also where it cannot be
  /// opened or lacks a function, kWorkerCrashed where it ended the worker.
  [[nodiscard]] Result<CudnnDescription> describe(const CudnnRequest& request,
                                                  std::stop_token stop = {});

 private:
  class State;
  [[nodiscard]] State& state();

  const PoolOptions options_;
  std::atomic<State*> state_;  // owned; replaced in a forked child, where the old leaks
};

}  // namespace kiln::compile
