#include "process/run_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>

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
constexpr int kLastStandard = STDERR_FILENO;
constexpr int kNotStarted = 127;  // as a shell says it
constexpr milliseconds kStep{5};
constexpr milliseconds kGrace{200};
constexpr milliseconds kDrained{1000};

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Result<Pipe> make_pipe(const std::string& name) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return posix_error("pipe", name, errno);
  Pipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  for (UniqueFd* each : {&pipe.read, &pipe.write}) {
    if (each->get() <= kLastStandard)  // this program has closed its own
      *each = UniqueFd(::fcntl(each->get(), F_DUPFD_CLOEXEC, kLastStandard + 1));
    if (!*each)
      return posix_error("duplicate a pipe of", name, errno);
  }
  return pipe;
}

struct Output {
  std::string text;
  std::string errors;  // the end of them
};

/// Appends what is there within the time; false: nothing. A pipe that is closed becomes
/// -1.
bool read_some(std::array<int, 2>& fds, milliseconds time, Output& output) {
  std::array<pollfd, 2> ready{{{.fd = fds[0], .events = POLLIN, .revents = 0},
                               {.fd = fds[1], .events = POLLIN, .revents = 0}}};
  if (::poll(ready.data(), ready.size(), static_cast<int>(time.count())) <= 0)
    return false;
  for (std::size_t i = 0; i < ready.size(); ++i) {
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
    if (i == 1 && text.size() > kQuoted)
      text.erase(0, text.size() - kQuoted);
  }
  return true;
}

/// The status of a process that has ended. 0, if another part of this program took the
/// status: then what it has printed counts.
std::optional<int> status_of(pid_t pid) {
  int status = 0;
  return ::waitpid(pid, &status, WNOHANG) == 0 ? std::nullopt : std::optional(status);
}

/// In the child of vfork(), whose memory is its parent's: nothing here returns or
/// allocates.
[[noreturn]] void become(char* const* words, const std::array<int, 3>& standard,
                         pid_t parent, int most_files) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setpgid(0, 0);
  // By no function that another library of this process may have replaced.
  constexpr std::array<std::uint64_t, 4> kDefault{};  // a sigaction of the kernel's
  for (int signal = 1; signal < NSIG; ++signal)
    ::syscall(SYS_rt_sigaction, signal, kDefault.data(), nullptr,
              sizeof(std::uint64_t));
  for (int i = 0; i < 3; ++i) ::dup2(standard[static_cast<std::size_t>(i)], i);
  if (::close_range(kLastStandard + 1, ~0U, 0) != 0) {  // before Linux 5.9
    for (int file = kLastStandard + 1; file < most_files; ++file) ::close(file);
  }
  sigset_t none{};
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  if (::getppid() == parent)
    ::execvp(words[0], words);
  ::dprintf(2, "%s: %s\n", words[0], ::strerrordesc_np(errno));
  ::_exit(kNotStarted);
}

/// In a group of its own, with no signal blocked or ignored. It is killed when this
/// thread ends, also with the whole process, for which posix_spawn() has no attribute.
pid_t spawn(std::vector<std::string> words, const std::array<int, 3>& standard) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // No handler of this process runs in the child.
  sigset_t all{};
  sigset_t before{};
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t parent = ::getpid();
  constexpr long kMostFiles = 1L << 20U;
  const auto most_files = static_cast<int>(
      std::clamp(::sysconf(_SC_OPEN_MAX), long{kLastStandard}, kMostFiles));
  // NOLINTBEGIN(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)
  const pid_t pid = ::vfork();
  if (pid == 0)
    become(arguments.data(), standard, parent, most_files);
  // NOLINTEND(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);  // errno stays
  return pid;
}

}  // namespace

Result<std::string> run_command(const CommandRun& run) {
  const auto deadline = Clock::now() + run.limit;
  const auto unavailable = [&](std::string_view what) {
    return fail(ErrorCode::kUnavailable, "{}: {}", run.name, what);
  };
  Pipe in = KILN_TRY(make_pipe(run.name));
  Pipe out = KILN_TRY(make_pipe(run.name));
  Pipe errors = KILN_TRY(make_pipe(run.name));
  if (run.input.size() > kMostInput ||
      ::write(in.write.get(), run.input.data(), run.input.size()) !=
          static_cast<ssize_t>(run.input.size()))
    return unavailable("its input cannot be written");
  in.write = UniqueFd();
  const pid_t pid = spawn(run.words, {in.read.get(), out.write.get(),
                                      run.quotes_errors ? errors.write.get() : 2});
  if (pid < 0)
    return posix_error("start", run.name, errno);
  for (UniqueFd* each : {&in.read, &out.write, &errors.write}) *each = UniqueFd();
  Output output;
  std::array<int, 2> fds{out.read.get(), errors.read.get()};
  std::optional<int> status;
  const auto is_too_much = [&] { return output.text.size() > run.most_bytes; };
  // Once it has ended, who still has its pipes is not waited for.
  auto end = deadline;
  for (bool has_read = true; !status || (has_read && (fds[0] >= 0 || fds[1] >= 0));) {
    if (Clock::now() >= end || is_too_much())
      break;
    has_read = read_some(fds, status ? kGrace : kStep, output);
    if (!status && (status = status_of(pid))) {
      has_read = true;  // what it wrote since
      end = Clock::now() + kDrained;
    }
  }
  if (!status) {
    ::kill(-pid, SIGKILL);
    end = Clock::now() + std::chrono::seconds(1);
    while (!status_of(pid) && Clock::now() < end) std::this_thread::sleep_for(kStep);
  }
  if (is_too_much())
    return unavailable("it writes too much");
  if (!status)
    return fail(ErrorCode::kTimeout, "{}: it did not end within {} s", run.name,
                run.limit.count() / 1000);
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == 0)
    return std::move(output.text);
  const std::string_view said = trimmed(output.errors);
  return unavailable(fmt::format(
      "{}{}{}",
      WIFEXITED(*status) ? fmt::format("it failed with {}", WEXITSTATUS(*status))
                         : fmt::format("signal {} ended it", WTERMSIG(*status)),
      said.empty() ? "" : ": ", said));
}

}  // namespace kiln
