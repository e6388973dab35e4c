#include "tests/support/fault/syscall_tracer.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>

namespace kiln::test {
namespace {

// No prctl of the kernel's has this number: it fails, and only the tracer knows it.
constexpr int kMark = 0x6b696c6e;
constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL |
                          PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                          PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC;
constexpr int kSyscallStop = SIGTRAP | 0x80;

#if defined(__x86_64__)
using Registers = user_regs_struct;
constexpr bool kKnownRegisters = true;

bool get(pid_t thread, Registers& registers) {
  return ::ptrace(PTRACE_GETREGS, thread, nullptr, &registers) == 0;
}
void set(pid_t thread, Registers& registers) {
  ::ptrace(PTRACE_SETREGS, thread, nullptr, &registers);
}
/// At the entry: the kernel then makes no call, and leaves the result as it is.
void leave_out(pid_t thread) {
  Registers registers{};
  if (!get(thread, registers))
    return;
  registers.orig_rax = static_cast<unsigned long long>(-1);
  set(thread, registers);
}
void set_third_argument(pid_t thread, std::uint64_t value) {
  Registers registers{};
  if (!get(thread, registers))
    return;
  registers.rdx = value;
  set(thread, registers);
}
/// At the exit.
void set_result(pid_t thread, std::int64_t value) {
  Registers registers{};
  if (!get(thread, registers))
    return;
  registers.rax = static_cast<unsigned long long>(value);
  set(thread, registers);
}
#else
constexpr bool kKnownRegisters = false;
void leave_out(pid_t) {}
void set_third_argument(pid_t, std::uint64_t) {}
void set_result(pid_t, std::int64_t) {}
#endif

std::string path_of_descriptor(pid_t thread, std::uint64_t descriptor) {
  std::error_code gone;
  return std::filesystem::read_symlink("/proc/" + std::to_string(thread) + "/fd/" +
                                           std::to_string(static_cast<int>(descriptor)),
                                       gone);
}

std::string text_at(pid_t thread, std::uint64_t address) {
  std::string text;
  for (char c = 0; address != 0 && text.size() < PATH_MAX; text.push_back(c)) {
    iovec here{.iov_base = &c, .iov_len = 1};
    iovec there{.iov_base = reinterpret_cast<void*>(address + text.size()),
                .iov_len = 1};
    if (::process_vm_readv(thread, &here, 1, &there, 1, 0) != 1 || c == 0)
      break;
  }
  return text;
}

std::string path_below(pid_t thread, std::uint64_t folder, std::uint64_t name) {
  const std::string text = text_at(thread, name);
  if (text.starts_with('/') || static_cast<int>(folder) == AT_FDCWD)
    return text;
  return path_of_descriptor(thread, folder) + (text.empty() ? "" : "/" + text);
}

/// Kills a process group at a deadline, unless it is destroyed before.
class Watchdog {
 public:
  Watchdog(pid_t group, std::chrono::seconds limit)
      : thread_([this, group, limit](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          if (ended_.wait_for(lock, stop, limit, [&] { return stop.stop_requested(); }))
            return;
          fired_ = true;
          ::kill(-group, SIGKILL);
        }) {}

  /// Whether it had to.
  bool end() {
    thread_.request_stop();
    thread_.join();
    return fired_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any ended_;
  bool fired_ = false;
  std::jthread thread_;  // last: it uses the others
};

class Tracer {
 public:
  Tracer(pid_t child, const std::function<Fate(const SystemCall&)>& decide)
      : child_(child), decide_(decide) {}

  /// Until the child and everything it started is gone.
  void run() {
    for (;;) {
      int status = 0;
      const pid_t thread = ::waitpid(-1, &status, __WALL);
      if (thread < 0 && errno == EINTR)
        continue;
      if (thread < 0)
        return;
      if (WIFSTOPPED(status))
        go_on(thread, status);
      else
        ended(thread, status);
    }
  }

  Traced take() { return std::move(traced_); }

 private:
  void ended(pid_t thread, int status) {
    replies_.erase(thread);
    if (thread == child_)
      traced_.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  void go_on(pid_t thread, int status) {
    int signal = WSTOPSIG(status);
    const bool is_event = status >> 16 != 0;
    if (signal == kSyscallStop) {
      at_call(thread);
      signal = 0;
    } else if (is_event || signal == SIGTRAP || is_first_stop(thread, signal)) {
      signal = 0;
    }
    ::ptrace(PTRACE_SYSCALL, thread, nullptr, signal);
  }

  /// A new thread or child begins with a SIGSTOP that nobody sent.
  bool is_first_stop(pid_t thread, int signal) {
    return signal == SIGSTOP && seen_.emplace(thread, true).second;
  }

  void at_call(pid_t thread) {
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(info), &info) <= 0)
      return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
      enter(thread, info);
    else if (info.op == PTRACE_SYSCALL_INFO_EXIT)
      leave(thread);
  }

  void enter(pid_t thread, const __ptrace_syscall_info& info) {
    const auto number = static_cast<long>(info.entry.nr);
    if (number == SYS_prctl && info.entry.args[0] == kMark) {
      decides_ = info.entry.args[1] != 0;
      return;
    }
    if (!decides_)
      return;
    SystemCall call{.thread = thread,
                    .number = number,
                    .arguments = {},
                    .position = static_cast<int>(traced_.calls.size())};
    for (std::size_t i = 0; i < call.arguments.size(); ++i)
      call.arguments[i] = info.entry.args[i];
    traced_.calls.push_back(call);
    apply(call, decide_(call));
  }

  void apply(const SystemCall& call, const Fate& fate) {
    switch (fate.kind) {
      case Fate::Kind::kMade:
        return;
      case Fate::Kind::kKilled:
        ::kill(child_, SIGKILL);
        return;
      case Fate::Kind::kFailed:
        leave_out(call.thread);
        replies_[call.thread] = -fate.error;
        return;
      case Fate::Kind::kLostReply:
        replies_[call.thread] = -fate.error;
        return;
      case Fate::Kind::kCutShort:
        set_third_argument(call.thread, fate.bytes);
        replies_[call.thread] = static_cast<std::int64_t>(call.arguments[2]);
        return;
    }
  }

  void leave(pid_t thread) {
    const auto reply = replies_.find(thread);
    if (reply == replies_.end())
      return;
    set_result(thread, reply->second);
    replies_.erase(reply);
  }

  const pid_t child_;
  const std::function<Fate(const SystemCall&)>& decide_;
  bool decides_ = false;
  std::map<pid_t, bool> seen_;
  std::map<pid_t, std::int64_t> replies_;  // of the call that the thread is in
  Traced traced_;
};

[[noreturn]] void be_traced(const std::function<int()>& body) {
  ::setpgid(0, 0);
  if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0)
    ::_exit(126);
  ::raise(SIGSTOP);  // until the tracer has set its options
  ::_exit(body());
}

}  // namespace

bool changes_files(const SystemCall& call) {
  switch (call.number) {
    case SYS_openat:
      return (call.arguments[2] & (O_CREAT | O_TRUNC)) != 0;
    case SYS_fcntl:
      return call.arguments[1] == F_SETLK || call.arguments[1] == F_OFD_SETLK;
    case SYS_write:
    case SYS_writev:
    case SYS_pwrite64:
    case SYS_ftruncate:
    case SYS_fallocate:
    case SYS_fdatasync:
    case SYS_fsync:
    case SYS_fchmod:
    case SYS_fchmodat:
    case SYS_fchown:
    case SYS_utimensat:
    case SYS_linkat:
    case SYS_unlinkat:
    case SYS_renameat2:
    case SYS_mkdirat:
#if defined(__x86_64__)
    case SYS_link:
    case SYS_unlink:
    case SYS_rename:
    case SYS_mkdir:
    case SYS_rmdir:
#endif
      return true;
    default:
      return false;
  }
}

std::string path_of(const SystemCall& call) {
  switch (call.number) {
    case SYS_read:
    case SYS_pread64:
    case SYS_close:
    case SYS_write:
    case SYS_writev:
    case SYS_pwrite64:
    case SYS_ftruncate:
    case SYS_fallocate:
    case SYS_fdatasync:
    case SYS_fsync:
    case SYS_fstat:
    case SYS_fchmod:
    case SYS_fchown:
    case SYS_fcntl:
      return path_of_descriptor(call.thread, call.arguments[0]);
    case SYS_openat:
    case SYS_newfstatat:
    case SYS_unlinkat:
    case SYS_mkdirat:
    case SYS_utimensat:
      return path_below(call.thread, call.arguments[0], call.arguments[1]);
    case SYS_linkat:
    case SYS_renameat2:
      return path_below(call.thread, call.arguments[2], call.arguments[3]);
#if defined(__x86_64__)
    case SYS_link:
    case SYS_rename:
      return text_at(call.thread, call.arguments[1]);
    case SYS_unlink:
    case SYS_mkdir:
      return text_at(call.thread, call.arguments[0]);
#endif
    default:
      return "";
  }
}

bool can_trace() {
  static const bool can = [] {
    if (!kKnownRegisters)
      return false;
    int calls = 0;
    const Traced traced = trace(
        [] {
          begin_faults();
          return ::syscall(SYS_getppid) == -1 && errno == ENOSYS ? 0 : 1;
        },
        [&](const SystemCall& call) {
          ++calls;
          return call.number == SYS_getppid ? Fate::failed(ENOSYS) : Fate{};
        });
    return traced.status == 0 && calls > 0;
  }();
  return can;
}

Traced trace(const std::function<int()>& body,
             const std::function<Fate(const SystemCall&)>& decide,
             std::chrono::seconds deadline) {
  const pid_t child = ::fork();
  if (child == 0)
    be_traced(body);
  ::setpgid(child, child);  // whichever of the two comes first
  Watchdog watchdog(child, deadline);
  Tracer tracer(child, decide);
  int status = 0;
  Traced traced{.status = 126, .calls = {}, .timed_out = false};
  if (child > 0 && ::waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    ::ptrace(PTRACE_SETOPTIONS, child, nullptr, kOptions);
    ::ptrace(PTRACE_SYSCALL, child, nullptr, 0);
    tracer.run();
    traced = tracer.take();
  }
  traced.timed_out = watchdog.end();
  return traced;
}

void begin_faults() {
  ::prctl(kMark, 1, 0, 0, 0);
}

void end_faults() {
  ::prctl(kMark, 0, 0, 0, 0);
}

}  // namespace kiln::test
