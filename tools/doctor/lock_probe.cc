#include "tools/doctor/lock_probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <random>
#include <string>
#include <thread>
#include <tuple>

#include "cache/owned_range.h"
#include "util/unique_fd.h"
#include "util/words.h"

namespace kiln::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kReapPatience{200};
constexpr int kMostFiles = 1024;  // the command has opened few

/// Closes every descriptor but `answers`: a reader of our output must not wait for a
/// process that cannot end.
void close_all_but(int answers) {
  const auto kept = static_cast<unsigned>(answers);
  if (kept > 0)
    ::close_range(0, kept - 1, 0);
  if (::close_range(kept + 1, ~0U, 0) != 0) {  // before Linux 5.9
    for (int file = 0; file < kMostFiles; ++file) {
      if (file != answers)
        ::close(file);
    }
  }
}

/// 0 or a positive errno.
int lock_once(const char* file, off_t offset) {
  const int fd = ::open(file, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0)
    return errno;
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = offset;
  range.l_len = static_cast<off_t>(cache::kOwnerRecordBytes);
  if (::fcntl(fd, F_OFD_SETLK, &range) != 0 && errno != EAGAIN && errno != EACCES)
    return errno;  // else it is ours, or a build's: locks work
  range.l_type = F_UNLCK;
  return ::fcntl(fd, F_OFD_SETLK, &range) == 0 ? 0 : errno;
}

/// Reaps a killed process, but not for long: one that hangs in the kernel may not end.
void reap(pid_t pid) {
  const auto deadline = Clock::now() + kReapPatience;
  while (::waitpid(pid, nullptr, WNOHANG) == 0 && Clock::now() < deadline)
    std::this_thread::sleep_for(milliseconds(1));
}

/// The errno that the child process wrote; -1: nothing before the deadline.
int answer_of(int answers, Clock::time_point deadline) {
  pollfd ready{.fd = answers, .events = POLLIN, .revents = 0};
  for (;;) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
    const int n = ::poll(&ready, 1, left > 0 ? static_cast<int>(left) : 0);
    if (n < 0 && errno == EINTR)
      continue;
    int error = 0;
    if (n <= 0)
      return -1;
    return ::read(answers, &error, sizeof error) == sizeof error ? error : EIO;
  }
}

}  // namespace

std::string_view to_string(LockAnswer answer) {
  return word_of(answer, {"work", "refused", "no answer"});
}

LockProbe probe_locks(const std::filesystem::path& folder, milliseconds limit) {
  const auto began = Clock::now();
  const auto ended = [&](LockAnswer answer, int error) {
    return LockProbe{answer, error,
                     std::chrono::duration_cast<milliseconds>(Clock::now() - began)};
  };
  std::random_device random;
  const std::string file = folder / fmt::format("{:02x}", random() & 0xFFU);
  const auto offset = static_cast<off_t>((random() % 4096) * cache::kOwnerRecordBytes);
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return ended(LockAnswer::kRefused, errno);
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t pid = ::fork();
  if (pid == 0) {  // system calls only: other threads may have held locks
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    close_all_but(theirs.get());
    const int error = lock_once(file.c_str(), offset);
    std::ignore = ::write(theirs.get(), &error, sizeof error);
    ::_exit(0);
  }
  if (pid < 0)
    return ended(LockAnswer::kRefused, errno);
  theirs = UniqueFd();
  const int error = answer_of(ours.get(), began + limit);
  ::kill(pid, SIGKILL);
  reap(pid);
  if (error < 0)
    return ended(LockAnswer::kNoAnswer, 0);
  return ended(error == 0 ? LockAnswer::kWork : LockAnswer::kRefused, error);
}

}  // namespace kiln::tools
