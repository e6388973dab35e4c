// The workers of one process: at most max_workers at a time, started on demand and
// reused. Knows nothing of the requests.

#pragma once

#include <filesystem>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "compile/pool/build_watch.h"
#include "compile/pool/spawner.h"
#include "compile/pool/worker_memory.h"
#include "compile/pool/worker_path.h"
#include "compile/pool/worker_process.h"
#include "util/lazy_count.h"
#include "util/mutex.h"
#include "util/own_path.h"

namespace kiln::compile {

/// Thread safety: every member may be called from any thread. Destroy it only when no
/// permit is taken.
class WorkerSet {
 public:
  /// The libraries that a worker has opened or is about to open. It never closes them.
  using Libraries = std::vector<std::filesystem::path>;

  /// The right to run one worker; the destructor gives it back.
  class Permit;
  /// The right to run the only worker; the destructor gives it back.
  class Alone;

  /// `scratch`, `memory`, `max_idle`: see PoolOptions.
  WorkerSet(LazyCount max_workers, WorkerSearch search,
            std::vector<std::string> environment, OwnFolder scratch = {},
            WorkerMemory& memory = WorkerMemory::of_process(), unsigned max_idle = 0);
  WorkerSet(const WorkerSet&) = delete;
  WorkerSet& operator=(const WorkerSet&) = delete;
  ~WorkerSet();

  /// Waits, without a limit, until fewer than max_workers.now() permits are taken.
  /// Permits are given in the order of asking. Errors: kCancelled.
  [[nodiscard]] Result<std::unique_ptr<Permit>> acquire_permit(
      const std::stop_token& stop);

  /// For a caller with a permit: waits until everybody else who has one also waits
  /// here. Meanwhile, and until the result is destroyed, nobody gets a permit. Ends all
  /// idle workers. Errors: kCancelled.
  [[nodiscard]] Result<std::unique_ptr<Alone>> be_alone(const std::stop_token& stop);

  /// An idle worker that has opened exactly these libraries, else a new one; a start
  /// moves `watch` to kStarting. For a build the caller holds a permit. Errors:
  /// kUnavailable, kCancelled; kWorkerCrashed, `from_outside`, if a signal from outside
  /// ended the new one.
  [[nodiscard]] Result<WorkerProcess> acquire(const Libraries& libraries,
                                              const std::stop_token& stop,
                                              BuildWatch& watch);

  /// Keeps a worker that has answered for reuse, or ends one that is too many. A caller
  /// with a permit still holds it.
  void release(const Libraries& libraries, WorkerProcess worker);

 private:
  struct Idle {
    Libraries libraries;
    WorkerProcess process;
  };

  struct Waiting {};

  std::optional<WorkerProcess> take_idle(const Libraries& libraries);
  Result<WorkerProcess> start(const std::stop_token& stop);
  [[nodiscard]] std::vector<std::string> environment() const;

  // Constant after construction.
  const LazyCount max_workers_;
  const WorkerSearch search_;
  const std::vector<std::string> environment_;
  const OwnFolder scratch_;
  WorkerMemory& memory_;
  const unsigned max_idle_;  // 0: no bound

  Spawner spawner_;  // thread-safe; outlives every worker below

  Mutex mutex_;
  ConditionVariable changed_;
  unsigned busy_ KILN_GUARDED_BY(mutex_) = 0;         // permits taken
  std::list<Waiting> queue_ KILN_GUARDED_BY(mutex_);  // for a permit
  std::list<Waiting> alone_ KILN_GUARDED_BY(mutex_);  // the first one may be at work
  std::vector<Idle> idle_ KILN_GUARDED_BY(mutex_);
};

class WorkerSet::Permit {
 public:
  explicit Permit(WorkerSet& workers) : workers_(workers) {}
  Permit(const Permit&) = delete;
  Permit& operator=(const Permit&) = delete;
  ~Permit();

 private:
  WorkerSet& workers_;
};

class WorkerSet::Alone {
 public:
  explicit Alone(WorkerSet& workers) KILN_REQUIRES(workers.mutex_);
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  ~Alone();

  [[nodiscard]] std::list<Waiting>::iterator place() const { return place_; }

 private:
  WorkerSet& workers_;
  const std::list<Waiting>::iterator place_;
};

}  // namespace kiln::compile
