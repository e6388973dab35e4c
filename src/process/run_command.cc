#include "process/run_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>
#include <tuple>

#include "util/posix_error.h"
#include "util/text.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMostInput = 4096;  // any pipe takes so many without a reader
constexpr std::size_t kQuoted = 512;

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Result<Pipe> make_pipe(const std::string& name) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return posix_error("pipe", name, errno);
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

struct Output {
  std::string text;
  std::string errors;  // the end of them
};

/// Everything until both pipes are closed; false: not within the time, or too much.
bool read_until(std::array<int, 2> fds, Clock::time_point deadline,
                std::size_t most_bytes, Output& output) {
  while (fds[0] >= 0 || fds[1] >= 0) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
    if (left <= 0)
      return false;  // it may print without end
    std::array<pollfd, 2> ready{{{.fd = fds[0], .events = POLLIN, .revents = 0},
                                 {.fd = fds[1], .events = POLLIN, .revents = 0}}};
    const int n = ::poll(ready.data(), ready.size(), static_cast<int>(left));
    if (n == 0 || (n < 0 && errno != EINTR))
      return false;
    for (std::size_t i = 0; n > 0 && i < ready.size(); ++i) {
      if (ready[i].revents == 0)
        continue;
      std::array<char, 4096> chunk{};
      const ssize_t size = ::read(fds[i], chunk.data(), chunk.size());
      if (size <= 0) {
        fds[i] = -1;
        continue;
      }
      std::string& text = i == 0 ? output.text : output.errors;
      text.append(chunk.data(), static_cast<std::size_t>(size));
      if (i == 0 && text.size() > most_bytes)
        return false;
      if (i == 1 && text.size() > kQuoted)
        text.erase(0, text.size() - kQuoted);
    }
  }
  return true;
}

/// The status of a process that ends by `deadline`; -1 else. 0, if another part of this
/// program took the status: then what it has printed counts.
int wait_until(pid_t pid, Clock::time_point deadline) {
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() >= deadline)
      return -1;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return status;
}

/// In a group of its own, with no signal blocked or ignored. The process id, or an
/// errno as the error.
tl::expected<pid_t, int> spawn(std::vector<std::string> words,
                               const std::array<int, 3>& standard) {
  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  for (int i = 0; i < 3; ++i)
    ::posix_spawn_file_actions_adddup2(&actions, standard[static_cast<std::size_t>(i)],
                                       i);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  sigset_t none{};
  sigset_t all{};
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP |
                                              POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, arguments.front(), &actions, &attributes,
                                   arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0)
    return tl::unexpected(error);
  return pid;
}

}  // namespace

Result<std::string> run_command(const CommandRun& run) {
  const auto deadline = Clock::now() + run.limit;
  const auto unavailable = [&](std::string_view what) {
    return fail(ErrorCode::kUnavailable, fmt::format("{}: {}", run.name, what));
  };
  Pipe in = KILN_TRY(make_pipe(run.name));
  Pipe out = KILN_TRY(make_pipe(run.name));
  Pipe errors = KILN_TRY(make_pipe(run.name));
  if (run.input.size() > kMostInput ||
      ::write(in.write.get(), run.input.data(), run.input.size()) !=
          static_cast<ssize_t>(run.input.size()))
    return unavailable("its input cannot be written");
  in.write = UniqueFd();
  const auto pid = spawn(run.words, {in.read.get(), out.write.get(),
                                     run.quotes_errors ? errors.write.get() : 2});
  if (!pid)
    return posix_error("start", run.name, pid.error());
  for (UniqueFd* each : {&in.read, &out.write, &errors.write}) *each = UniqueFd();
  Output output;
  const bool ended =
      read_until({out.read.get(), errors.read.get()}, deadline, run.most_bytes, output);
  const int status = ended ? wait_until(*pid, deadline) : -1;
  if (status == -1) {
    ::kill(-*pid, SIGKILL);
    std::ignore = wait_until(*pid, Clock::now() + std::chrono::seconds(1));
    if (output.text.size() > run.most_bytes)
      return unavailable("it writes too much");
    return fail(ErrorCode::kTimeout, fmt::format("{}: it did not end within {} s",
                                                 run.name, run.limit.count() / 1000));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return std::move(output.text);
  const std::string_view said = trimmed(output.errors);
  return unavailable(fmt::format(
      "{}{}{}",
      WIFEXITED(status) ? fmt::format("it failed with {}", WEXITSTATUS(status))
                        : fmt::format("signal {} ended it", WTERMSIG(status)),
      said.empty() ? "" : ": ", said));
}

}  // namespace kiln
