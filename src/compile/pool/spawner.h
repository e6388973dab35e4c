// The one thread that starts a pool's workers. A worker dies with the thread that
// started it (PR_SET_PDEATHSIG), so this one lives as long as the pool.

#pragma once

#include <chrono>
#include <memory>
#include <stop_token>

#include "compile/pool/worker_process.h"
#include "kiln/result.h"

namespace kiln::compile {

/// Thread safety: start() may be called from any thread. The first start() creates the
/// thread, which blocks every signal. The destructor ends the thread, unless the
/// operating system blocks it in a start for over five seconds.
class Spawner {
 public:
  Spawner();
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;
  ~Spawner();

  /// Starts a worker on the spawner's thread. Errors: as WorkerProcess::start;
  /// kCancelled; kUnavailable when the machine has not started it by `deadline`.
  [[nodiscard]] Result<WorkerProcess> start(
      WorkerCommand command, std::chrono::steady_clock::time_point deadline,
      const std::stop_token& stop);

 private:
  struct Queue;
  static void run(const std::shared_ptr<Queue>& queue);

  const std::shared_ptr<Queue> queue_;  // shared with the thread, which may outlive us
};

}  // namespace kiln::compile
