// The workers of one process: at most so many at a time, started when one is needed and
// reused while they last. Knows nothing of what they are asked.

#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "compile/pool/build_watch.h"
#include "compile/pool/spawner.h"
#include "compile/pool/worker_path.h"
#include "compile/pool/worker_process.h"
#include "util/lazy_count.h"
#include "util/mutex.h"

namespace kiln::compile {

/// Thread safety: every member may be called from any thread. Destroyed when no place
/// is taken any more.
class WorkerSet {
 public:
  /// What a worker has opened, or is about to: it keeps that until its end.
  using Libraries = std::vector<std::filesystem::path>;

  /// The right to have one worker at work; given back by the destructor.
  class Place;

  WorkerSet(LazyCount max_workers, WorkerSearch search,
            std::vector<std::string> environment);
  WorkerSet(const WorkerSet&) = delete;
  WorkerSet& operator=(const WorkerSet&) = delete;
  WorkerSet(WorkerSet&&) = delete;
  WorkerSet& operator=(WorkerSet&&) = delete;
  ~WorkerSet();

  /// Waits, without a limit, until fewer than max_workers places are taken.
  /// Errors: kCancelled.
  [[nodiscard]] Result<std::unique_ptr<Place>> acquire_place(
      const std::stop_token& stop);

  /// An idle worker that has opened these libraries and no others, else a new one;
  /// `watch` hears of a start. The caller has a place. Errors: kUnavailable,
  /// kCancelled.
  [[nodiscard]] Result<WorkerProcess> acquire(const Libraries& libraries,
                                              const std::stop_token& stop,
                                              BuildWatch& watch);

  /// Takes a worker back that has answered. The caller still has its place.
  void release(const Libraries& libraries, WorkerProcess worker);

 private:
  struct Idle {
    Libraries libraries;
    WorkerProcess process;
  };

  std::optional<WorkerProcess> take_idle(const Libraries& libraries);
  Result<WorkerProcess> start(const std::stop_token& stop);

  // Constant after construction.
  const LazyCount max_workers_;
  const WorkerSearch search_;
  const std::vector<std::string> environment_;

  Spawner spawner_;  // thread-safe; outlives every worker below

  Mutex mutex_;
  ConditionVariable changed_;
  unsigned busy_ KILN_GUARDED_BY(mutex_) = 0;  // places taken
  std::vector<Idle> idle_ KILN_GUARDED_BY(mutex_);
};

class WorkerSet::Place {
 public:
  explicit Place(WorkerSet& workers) : workers_(workers) {}
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  Place(Place&&) = delete;
  Place& operator=(Place&&) = delete;
  ~Place();

 private:
  WorkerSet& workers_;
};

}  // namespace kiln::compile
