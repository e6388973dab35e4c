#include "process/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <system_error>
#include <thread>

#include "util/file_size_limit.h"
#include "util/little_endian.h"
#include "util/log.h"
#include "util/posix_error.h"
#include "util/proc_file.h"
#include "util/try.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::string_view_literals;
using std::chrono::milliseconds;

constexpr milliseconds kTick{20};           // how often limits are checked
constexpr milliseconds kReapTimeout{2000};  // for a process that was sent SIGKILL
constexpr milliseconds kLeaveTimeout{20};
constexpr std::size_t kOutputBytes = 64U << 10U;
constexpr std::size_t kOutputTailBytes = 2048;
constexpr std::size_t kReadStepBytes = 256U << 10U;
constexpr std::size_t kReceiveStepBytes = 64U << 10U;
constexpr int kFirstSafeFd = 10;  // above every number the child's set-up dup2s to

tl::unexpected<Error> start_error(const ChildCommand& command, std::string_view call,
                                  int err) {
  return fail(ErrorCode::kUnavailable, "cannot start the {} {}: {}: {}", command.name,
              command.path.native(), call, std::generic_category().message(err));
}

/// Room for one descriptor beside a message.
struct DescriptorRoom {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> bytes{};
};

ssize_t send_some(int socket, ByteView bytes, int descriptor) {
  iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  DescriptorRoom room;
  if (descriptor != -1) {
    message.msg_control = room.bytes.data();
    message.msg_controllen = room.bytes.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// Moves the descriptor to a number that SpawnSetup does not overwrite.
UniqueFd move_above_reserved_fds(UniqueFd fd) {
  UniqueFd moved(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kFirstSafeFd));
  const int err = errno;
  fd = {};  // close() may change errno
  // EINVAL: the limit of descriptors (RLIMIT_NOFILE) is below that number.
  errno = err == EINVAL ? EMFILE : err;
  return moved;
}

/// A buffer of fixed size: output beyond it is lost and takes none of our memory. Under
/// a smaller limit of file sizes (RLIMIT_FSIZE) all output is lost.
UniqueFd make_output_buffer() {
  UniqueFd buffer(
      ::memfd_create("kiln-worker output", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!buffer)
    return {};
  if (without_file_size_signal(
          [&] { return ::ftruncate(buffer.get(), kOutputBytes); }) != 0)
    return UniqueFd(errno == EFBIG ? ::open("/dev/null", O_WRONLY | O_CLOEXEC) : -1);
  if (::fcntl(buffer.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) != 0)
    return {};
  return buffer;
}

/// posix_spawn's two argument objects. Thread safety: one thread.
class SpawnSetup {
 public:
  SpawnSetup() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
  ~SpawnSetup() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }

  /// The worker's four descriptors; every other one is closed.
  void set_descriptors(int socket, int output) {
    ::posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, output, 1);
    ::posix_spawn_file_actions_adddup2(&actions_, output, 2);
    ::posix_spawn_file_actions_adddup2(&actions_, socket, kWorkerSocket);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, kWorkerSocket + 1);
  }

  /// Gives the worker its own session, so that its group can be killed and a terminal's
  /// Ctrl-C reaches only us. Resets the host's blocked and ignored signals.
  void isolate() {
    sigset_t none;
    sigset_t all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSID |
                                                 POSIX_SPAWN_SETSIGMASK |
                                                 POSIX_SPAWN_SETSIGDEF);
  }

  /// The process id, or errno as the error.
  tl::expected<pid_t, int> spawn(const ChildCommand& command) {
    std::vector<std::string> arguments{command.path.native(), "--parent",
                                       std::to_string(::getpid())};
    arguments.insert(arguments.end(), command.arguments.begin(),
                     command.arguments.end());
    auto environment = command.environment;
    const auto pointers = [](std::vector<std::string>& strings) {
      std::vector<char*> list;
      list.reserve(strings.size() + 1);
      for (auto& text : strings) list.push_back(text.data());
      list.push_back(nullptr);
      return list;
    };
    pid_t pid = -1;
    const int error =
        ::posix_spawn(&pid, command.path.c_str(), &actions_, &attributes_,
                      pointers(arguments).data(), pointers(environment).data());
    if (error != 0)
      return tl::unexpected(error);
    return pid;
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

/// Whether the process has ended, which nobody has been told yet. nullopt: it is no
/// child of ours. A host that waits for any child may have reaped it, and its pid may
/// now belong to another process.
std::optional<bool> has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) ==
                 0
             ? std::optional(info.si_pid == pid)
             : std::nullopt;
}

/// A signal that is no fault of the process that it ended: another process sent it, the
/// kernel lacked memory, or a limit of processor time or file sizes was reached.
bool is_from_outside(std::optional<int> status) {
  constexpr std::array kOwnFaults{SIGSEGV, SIGBUS,  SIGILL, SIGFPE,
                                  SIGABRT, SIGTRAP, SIGSYS};
  return status && WIFSIGNALED(*status) &&
         std::ranges::find(kOwnFaults, WTERMSIG(*status)) == kOwnFaults.end();
}

std::string describe_end(std::optional<int> status) {
  if (!status)
    return "ended, and another part of this program took its exit status";
  if (WIFSIGNALED(*status)) {
    const int signal = WTERMSIG(*status);
    const char* const name = ::sigdescr_np(signal);
    return fmt::format("was killed by signal {} ({}){}", signal,
                       name == nullptr ? "unknown" : name,
                       signal == SIGKILL ? ", perhaps for want of memory" : "");
  }
  return fmt::format("exited with status {}", WEXITSTATUS(*status));
}

std::uint64_t resident_bytes_of_one(pid_t pid) {
  const auto statm = read_proc_file(fmt::format("/proc/{}/statm", pid));
  return statm ? resident_bytes_in(*statm) : 0;
}

}  // namespace

bool send_to_host(ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(kWorkerSocket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

bool receive_from_host(Bytes& bytes, std::deque<UniqueFd>& descriptors) {
  std::array<std::byte, kReceiveStepBytes> step;  // NOLINT(*-member-init): read into
  iovec part{.iov_base = step.data(), .iov_len = step.size()};
  DescriptorRoom room;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.bytes.data();
  message.msg_controllen = room.bytes.size();
  const ssize_t n = ::recvmsg(kWorkerSocket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0)
    return errno == EINTR || errno == EAGAIN;
  append(bytes, ByteView(step).first(static_cast<std::size_t>(n)));
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    descriptors.emplace_back(descriptor);
  } else if ((message.msg_flags & MSG_CTRUNC) != 0) {
    descriptors.emplace_back();
  }
  return n > 0;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code gone;  // a process that has ended has no children
  const auto folder = fmt::format("/proc/{}/task", pid);
  for (std::filesystem::directory_iterator thread(folder, gone), end;
       !gone && thread != end; thread.increment(gone)) {
    const auto text = read_proc_file(thread->path() / "children").value_or("");
    for (const char *at = text.data(), *last = at + text.size(); at != last;) {
      pid_t child = 0;
      const auto [next, error] = std::from_chars(at, last, child);
      if (error == std::errc{})
        children.push_back(child);
      at = std::find(next, last, ' ');
      at = std::find_if(at, last, [](char c) { return c != ' '; });
    }
  }
  return children;
}

namespace {

std::uint64_t resident_bytes_of_tree(pid_t pid, int depth = 0) {
  constexpr int kMaxDepth = 4;  // NVRTC itself starts no process
  std::uint64_t sum = resident_bytes_of_one(pid);
  if (depth < kMaxDepth) {
    for (const pid_t child : children_of(pid))
      sum += resident_bytes_of_tree(child, depth + 1);
  }
  return sum;
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const ChildCommand& command) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return start_error(command, "socketpair", errno);
  UniqueFd ours(ends[0]);
  const UniqueFd theirs = move_above_reserved_fds(UniqueFd(ends[1]));
  if (!theirs)
    return start_error(command, "fcntl", errno);
  UniqueFd output = make_output_buffer();
  if (!output)
    return start_error(command, "memfd_create", errno);
  output = move_above_reserved_fds(std::move(output));
  if (!output)
    return start_error(command, "fcntl", errno);

  SpawnSetup setup;
  setup.set_descriptors(theirs.get(), output.get());
  setup.isolate();
  const auto pid = setup.spawn(command);
  if (!pid)
    return start_error(command,
                       pid.error() == ENOENT && ::access("/dev/null", R_OK) != 0
                           ? "/dev/null, its standard input (is /dev mounted?)"
                           : "posix_spawn",
                       pid.error());
  return ChildProcess(command.name, *pid, std::move(ours), std::move(output));
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : name_(other.name_),
      pid_(std::exchange(other.pid_, -1)),
      socket_(std::move(other.socket_)),
      output_(std::move(other.output_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    kill();
    name_ = other.name_;
    pid_ = std::exchange(other.pid_, -1);
    socket_ = std::move(other.socket_);
    output_ = std::move(other.output_);
  }
  return *this;
}

ChildProcess::~ChildProcess() {
  kill();
}

Result<void> ChildProcess::wait_until_ready(short events,
                                            const ExchangeLimits& limits) const {
  while (true) {
    if (limits.stop.stop_requested())
      return fail(ErrorCode::kCancelled, "cancelled");
    if (Clock::now() >= limits.deadline)
      return fail(ErrorCode::kTimeout, "the {} gave no answer in time", name_);
    pollfd socket{.fd = socket_.get(), .events = events, .revents = 0};
    const int ready = ::poll(&socket, 1, static_cast<int>(kTick.count()));
    const int err = errno;
    if (!socket_.is_ours())
      return fail(ErrorCode::kWorkerCrashed,
                  "this program has closed the socket of the {}, process {}: close "
                  "only descriptors that you have opened",
                  name_, pid_);
    if (ready > 0)
      return {};  // also on a hang-up: the next read or send reports it
    if (ready < 0 && err != EINTR)
      return posix_error("poll", fmt::format("the {}'s socket", name_), err);
    const std::uint64_t resident = limits.memory_bytes == 0 ? 0 : resident_bytes();
    if (limits.on_memory)
      limits.on_memory(resident);
    if (resident > limits.memory_bytes)
      return fail(ErrorCode::kResourceLimit, "the {} holds too much memory", name_);
  }
}

Result<void> ChildProcess::send(ByteView frame, const ExchangeLimits& limits,
                                int descriptor) {
  while (!frame.empty()) {
    KILN_TRY(wait_until_ready(POLLOUT, limits));
    const ssize_t n = send_some(socket_.get(), frame, descriptor);
    if (n >= 0) {
      frame = frame.subspan(static_cast<std::size_t>(n));
      descriptor = -1;
    } else if (errno == ETOOMANYREFS) {
      std::this_thread::sleep_for(kTick);  // until the child has taken some
    } else if (errno != EINTR && errno != EAGAIN) {
      return crashed();
    }
  }
  return {};
}

Result<void> ChildProcess::read_up_to(Bytes& frame, std::uint64_t size,
                                      const ExchangeLimits& limits) {
  while (frame.size() < size) {
    KILN_TRY(wait_until_ready(POLLIN, limits));
    // Grows as bytes arrive: a large length in a header allocates nothing by itself.
    const std::size_t begun = frame.size();
    frame.resize(begun + std::min<std::uint64_t>(size - begun, kReadStepBytes));
    const ssize_t n =
        ::recv(socket_.get(), frame.data() + begun, frame.size() - begun, MSG_DONTWAIT);
    const int error = errno;
    frame.resize(begun + static_cast<std::size_t>(n > 0 ? n : 0));
    if (n == 0 || (n < 0 && error != EINTR && error != EAGAIN))
      return crashed();
  }
  return {};
}

Result<Bytes> ChildProcess::receive_frame(const ExchangeLimits& limits) {
  Bytes frame;
  KILN_TRY(read_up_to(frame, kFrameHeaderBytes, limits));
  const auto size = KILN_TRY(frame_bytes(frame));
  KILN_TRY(read_up_to(frame, size, limits));
  return frame;
}

tl::unexpected<Error> ChildProcess::crashed() {
  const pid_t pid = pid_;
  const auto status = reap(kReapTimeout);
  kill();  // it may have closed its socket and still be running
  // It ends itself only if this process did not watch it, e.g. because it was stopped.
  if (status && WIFEXITED(*status) && WEXITSTATUS(*status) == kExitOverTime)
    return fail(ErrorCode::kTimeout, "the {} gave no answer in time", name_);
  if (status && WIFEXITED(*status) && WEXITSTATUS(*status) == kExitOverMemory)
    return fail(ErrorCode::kResourceLimit, "the {} holds too much memory", name_);
  const auto tail = output_tail();
  return tl::unexpected(
      Error{ErrorCode::kWorkerCrashed,
            fmt::format("the {}, process {}, {}{}{}", name_, pid, describe_end(status),
                        tail.empty() ? "" : "; it wrote: ", tail),
            is_from_outside(status)});
}

void ChildProcess::kill() {
  const pid_t pid = pid_;
  if (!end_within(kReapTimeout))
    log(LogLevel::kWarning, {name_, " ", std::to_string(pid),
                             " does not end though it was killed; left behind"});
}

void ChildProcess::leave() {
  std::ignore = end_within(kLeaveTimeout);  // else it stays a zombie once it ends
}

/// False: it has not ended.
bool ChildProcess::end_within(milliseconds timeout) {
  bool ended = true;
  if (pid_ != -1 && has_ended(pid_).has_value()) {
    std::ignore = ::kill(-pid_, SIGKILL);  // ESRCH: it had already ended
    std::ignore = reap(timeout);           // the exit status does not matter
    ended = pid_ == -1;
  }
  pid_ = -1;
  return ended;
}

/// Returns the exit status and sets pid_ to -1. nullopt if the worker has not ended
/// after `timeout`, or if other code reaped it.
std::optional<int> ChildProcess::reap(milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  milliseconds pause{1};
  while (pid_ != -1) {
    if (has_ended(pid_) == true)
      ::kill(-pid_, SIGKILL);  // what it has started ends with it, whoever ended it
    int status = 0;
    const pid_t reaped = ::waitpid(pid_, &status, WNOHANG);
    if (reaped == pid_) {
      pid_ = -1;
      return status;
    }
    if (reaped < 0 && errno != EINTR) {
      pid_ = -1;
      break;
    }
    if (Clock::now() >= deadline)
      break;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kTick);
  }
  return std::nullopt;
}

bool ChildProcess::alive() const {
  return pid_ != -1 && has_ended(pid_) == false;
}

std::uint64_t ChildProcess::resident_bytes() const {
  return pid_ == -1 ? 0 : resident_bytes_of_tree(pid_);
}

std::optional<std::chrono::nanoseconds> ChildProcess::processor_time() const {
  clockid_t clock{};
  timespec time{};
  if (pid_ == -1 || ::clock_getcpuclockid(pid_, &clock) != 0 ||
      ::clock_gettime(clock, &time) != 0)
    return std::nullopt;
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// The last kOutputTailBytes, at most, that the worker wrote to stdout and stderr.
std::string ChildProcess::output_tail() const {
  if (!output_.is_ours())
    return {};
  // The offset is shared with the worker: it is where the worker stopped writing.
  const auto end = ::lseek(output_.get(), 0, SEEK_CUR);
  if (end <= 0)
    return {};
  std::string text(
      std::min<std::size_t>(static_cast<std::size_t>(end), kOutputTailBytes), '\0');
  const ssize_t n = ::pread(output_.get(), text.data(), text.size(),
                            end - static_cast<off_t>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  text.resize(text.find_last_not_of("\n\0 "sv) + 1);
  return text;
}

}  // namespace kiln
