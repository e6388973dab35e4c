#include "compile/worker/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "compile/protocol/program_end.h"
#include "process/child_process.h"
#include "util/unique_fd.h"

namespace kiln::compile {
namespace {

using Clock = std::chrono::steady_clock;

/// Whoever loses its parent below becomes this process's child, so it is found.
void kill_descendants() {
  constexpr int kMostRounds = 2000;
  for (int i = 0; i < kMostRounds; ++i) {
    std::vector<pid_t> all = children_of(::getpid());
    if (all.empty())
      return;
    for (std::size_t at = 0; at < all.size(); ++at) {
      const auto below = children_of(all[at]);
      all.insert(all.end(), below.begin(), below.end());
    }
    for (const pid_t each : all) ::kill(each, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// All that is below, and the group, whose first process this is.
[[noreturn]] void end_group() {
  kill_descendants();
  ::kill(0, SIGKILL);
  ::_exit(EXIT_FAILURE);
}

void tell(const ProgramEnd& end) {
  if (!send_to_host(encode(end)))
    end_group();
}

/// Until the program has ended. A forked child of the host may keep the socket open,
/// hence the getppid() check.
void wait_for(int program, pid_t parent, Clock::time_point deadline) {
  constexpr int kAskEveryMs = 50;
  while (true) {
    if (Clock::now() >= deadline) {
      kill_descendants();
      ::_exit(kExitOverTime);
    }
    std::array<pollfd, 2> both{
        pollfd{.fd = kWorkerSocket, .events = POLLRDHUP, .revents = 0},
        pollfd{.fd = program, .events = POLLIN, .revents = 0}};
    ::poll(both.data(), both.size(), kAskEveryMs);
    if (both[0].revents != 0 || ::getppid() != parent)
      end_group();
    if (both[1].revents != 0)
      return;
  }
}

/// 0, or an errno.
int start(const char* folder, const char* output, std::span<char*> command,
          pid_t& program) {
  const UniqueFd out(::open(output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!out || ::chdir(folder) != 0)
    return errno;
  posix_spawn_file_actions_t actions{};
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, out.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out.get(), STDERR_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, kWorkerSocket);
  const int error = ::posix_spawnp(&program, command.front(), &actions, nullptr,
                                   command.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

void run_program(pid_t parent, std::chrono::milliseconds limit, const char* folder,
                 const char* output, std::span<char*> command) {
  const auto deadline = Clock::now() + limit;
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  pid_t program = -1;
  if (const int error = start(folder, output, command, program); error != 0) {
    tell({.error = error});
    end_group();
  }
  const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, program, 0)));
  if (!handle)
    end_group();
  wait_for(handle.get(), parent, deadline);
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(program), &info, WEXITED) != 0) {
    if (errno != EINTR)
      end_group();
  }
  tell(info.si_code == CLD_EXITED ? ProgramEnd{.status = info.si_status}
                                  : ProgramEnd{.signal = info.si_status});
  pollfd socket{.fd = kWorkerSocket, .events = POLLRDHUP, .revents = 0};
  while (::poll(&socket, 1, -1) < 0 && errno == EINTR) {
  }
  end_group();
}

}  // namespace kiln::compile
