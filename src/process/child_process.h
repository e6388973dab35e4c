// One kiln-worker process: starts it, exchanges messages, watches its limits, kills its
// process group and reaps it. Knows nothing of pools or of what is compiled.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "compile/protocol/protocol.h"
#include "kiln/result.h"
#include "util/unique_fd.h"

namespace kiln::compile {

struct WorkerCommand {
  std::filesystem::path path;
  std::vector<std::string> environment;  // "NAME=value"; the worker's whole environment
};

/// The limits that end an exchange when the worker does not answer.
struct ExchangeLimits {
  std::chrono::steady_clock::time_point deadline;
  std::uint64_t memory_bytes = 0;  // resident, whole process group; 0: no limit
  std::stop_token stop;
};

/// Thread safety: one thread at a time. The destructor kills the group and reaps it,
/// waiting two seconds at most.
class WorkerProcess {
 public:
  /// Starts the executable in its own session. It inherits one socket and no other
  /// descriptor of this process; stdin is /dev/null, stdout and stderr go to a small
  /// buffer whose end is quoted when the worker dies.
  /// The worker is killed when the *calling thread* ends (PR_SET_PDEATHSIG): call this
  /// on a long-lived thread. Does not wait for the worker.
  /// Errors: kUnavailable when it cannot be started.
  [[nodiscard]] static Result<WorkerProcess> start(const WorkerCommand& command);

  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&& other) noexcept;
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess();

  /// Sends one frame, watching `limits`. Errors: as receive().
  [[nodiscard]] Result<void> send(ByteView frame, const ExchangeLimits& limits);

  /// The next reply. Errors: kTimeout, kResourceLimit and kCancelled when a limit is
  /// hit (the worker still runs: kill it); kWorkerCrashed, with how it ended and its
  /// last words, when it is gone; kCorrupt for a frame that does not decode.
  [[nodiscard]] Result<Reply> receive(const ExchangeLimits& limits);

  /// SIGKILL to the group, then reap. Idempotent.
  void kill();

  /// False once the process has ended; a zombie is not alive.
  [[nodiscard]] bool alive() const;
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Resident memory of the process and its descendants; 0 when unknown.
  [[nodiscard]] std::uint64_t resident_bytes() const;

 private:
  WorkerProcess(pid_t pid, UniqueFd socket, UniqueFd output)
      : pid_(pid), socket_(std::move(socket)), output_(std::move(output)) {}

  [[nodiscard]] Result<void> wait_until_ready(short events,
                                              const ExchangeLimits& limits) const;
  [[nodiscard]] Result<void> read_up_to(Bytes& frame, std::uint64_t size,
                                        const ExchangeLimits& limits);
  [[nodiscard]] tl::unexpected<Error> crashed();
  [[nodiscard]] std::optional<int> reap(std::chrono::milliseconds timeout);
  [[nodiscard]] std::string output_tail() const;

  pid_t pid_ = -1;  // -1: reaped
  UniqueFd socket_;
  UniqueFd output_;
};

}  // namespace kiln::compile
