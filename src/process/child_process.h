// A process that works for this one: starts it, exchanges frames, watches its limits,
// kills its process group and reaps it. Knows nothing of what it does.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/frame.h"
#include "kiln/result.h"
#include "util/kept_fd.h"
#include "util/unique_fd.h"

namespace kiln {

/// The descriptor of the child's end of the socket; the child inherits none above it.
inline constexpr int kWorkerSocket = 3;

/// The exit statuses of a child that ended itself because it was over a limit.
inline constexpr int kExitOverTime = 81;
inline constexpr int kExitOverMemory = 82;

/// Called in the child: sends all of it to the host. False: the host is gone.
[[nodiscard]] bool send_to_host(ByteView bytes);

/// Called in the child: some of what the host has sent, behind `bytes`; and the
/// descriptors that came with it, behind `descriptors`. One that this process has no
/// room for is null. False: the host is gone. Does not wait.
[[nodiscard]] bool receive_from_host(Bytes& bytes, std::deque<UniqueFd>& descriptors);

/// Direct children, zombies too; none where the kernel does not say. Thread-safe.
[[nodiscard]] std::vector<pid_t> children_of(pid_t pid);

struct ChildCommand {
  std::filesystem::path path;
  std::vector<std::string>
      environment{};  // "NAME=value"; the child's whole environment
  std::string_view name = "compile worker";  // in messages
  std::vector<std::string> arguments{};      // behind "--parent <pid>"
};

/// The limits that end an exchange when the child does not answer.
struct ExchangeLimits {
  std::chrono::steady_clock::time_point deadline;
  std::uint64_t memory_bytes = 0;  // resident, whole process group; 0: no limit
  std::stop_token stop;
  /// Called with the resident memory, now and then while the child is waited for.
  std::function<void(std::uint64_t)> on_memory{};
};

/// Thread safety: one thread at a time. The destructor kills the group and reaps it,
/// waiting two seconds at most.
class ChildProcess {
 public:
  /// Starts the executable in its own session. It inherits one socket and no other
  /// descriptor of this process; stdin is /dev/null, stdout and stderr go to a small
  /// buffer whose end is quoted when the child dies.
  /// The child is killed when the *calling thread* ends (PR_SET_PDEATHSIG): call this
  /// on a long-lived thread. Does not wait for the child.
  /// Errors: kUnavailable when it cannot be started.
  [[nodiscard]] static Result<ChildProcess> start(const ChildCommand& command);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  /// Sends one frame, watching `limits`, and with its first byte a copy of the
  /// `descriptor`; -1: none. Errors: as receive_frame().
  [[nodiscard]] Result<void> send(ByteView frame, const ExchangeLimits& limits,
                                  int descriptor = -1);

  /// The next frame, undecoded. Errors: kTimeout, kResourceLimit and kCancelled when a
  /// limit is hit (the child still runs: kill it); kWorkerCrashed, with how it ended
  /// and its last words, when it is gone (its signal says whether `from_outside`), or
  /// when the host has closed the socket; kCorrupt for what is no frame.
  [[nodiscard]] Result<Bytes> receive_frame(const ExchangeLimits& limits);

  /// SIGKILL to the group, then reap. Idempotent.
  void kill();

  /// The same of one that may hang in the kernel: does not wait for its end.
  void leave();

  /// False once the process has ended; a zombie is not alive.
  [[nodiscard]] bool alive() const;
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// To wait for what it sends; nothing else reads or writes there. -1 if the host has
  /// closed it.
  [[nodiscard]] int socket() const { return socket_.is_ours() ? socket_.get() : -1; }
  /// Resident memory of the process and its descendants; 0 when unknown.
  [[nodiscard]] std::uint64_t resident_bytes() const;
  /// What the process has had of the processors; nullopt when unknown.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> processor_time() const;

 private:
  ChildProcess(std::string_view name, pid_t pid, KeptFd socket, KeptFd output)
      : name_(name),
        pid_(pid),
        socket_(std::move(socket)),
        output_(std::move(output)) {}

  [[nodiscard]] Result<void> wait_until_ready(short events,
                                              const ExchangeLimits& limits) const;
  [[nodiscard]] Result<void> read_up_to(Bytes& frame, std::uint64_t size,
                                        const ExchangeLimits& limits);
  [[nodiscard]] tl::unexpected<Error> crashed();
  [[nodiscard]] bool end_within(std::chrono::milliseconds timeout);
  [[nodiscard]] std::optional<int> reap(std::chrono::milliseconds timeout);
  [[nodiscard]] std::string output_tail() const;

  std::string_view name_;
  pid_t pid_ = -1;  // -1: reaped
  KeptFd socket_;
  KeptFd output_;
};

}  // namespace kiln
