// A forked child that runs a function and exits, for tests with several processes, and
// what it shares with the others.

#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace kiln::test {

/// Killed and reaped by its destructor at the latest.
class ChildProcess {
 public:
  /// `body` returns the exit code. The child leaves through _exit: no destructors, no
  /// test framework.
  template <typename Body>
  explicit ChildProcess(Body&& body) : pid_(fork_while_others_sleep()) {
    if (pid_ == 0)
      ::_exit(std::forward<Body>(body)());
  }
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ChildProcess& operator=(ChildProcess&&) = delete;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() {
    if (pid_ > 0) {
      signal(SIGKILL);
      signal(SIGCONT);
      wait();
    }
  }

  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }

  /// The exit code, or minus the signal that ended it. One that runs for five minutes
  /// is killed, and the test fails.
  int wait() {
    const pid_t pid = std::exchange(pid_, -1);
    int status = 0;
    pid_t ended = 0;
    for (int ms = 0; ms < 300'000; ++ms) {
      ended = ::waitpid(pid, &status, WNOHANG);
      if (ended != 0)
        break;
      ::usleep(1000);
    }
    if (ended == 0) {
      ADD_FAILURE() << "a child hangs:" << text_of_threads(pid);
      ::kill(pid, SIGKILL);
      ended = ::waitpid(pid, &status, 0);
    }
    if (ended < 0)
      return -1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  /// With a sanitizer a child may hang if another thread allocates during the fork.
  static pid_t fork_while_others_sleep() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    for (int turn = 0; turn < 2000 && another_thread_runs(); ++turn) ::usleep(1000);
#endif
    return ::fork();
  }
  static bool another_thread_runs() {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string stat;  // "<thread> (<name>) <state> ..."
      std::getline(std::ifstream(task.path() / "stat"), stat);
      if (task.path().filename() != std::to_string(::gettid()) &&
          stat.find(") R") != std::string::npos)
        return true;
    }
    return false;
  }

  /// What each thread of the process waits for.
  static std::string text_of_threads(pid_t pid) {
    std::string text;
    std::error_code gone;
    const auto tasks = "/proc/" + std::to_string(pid) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks, gone))
      for (const char* const file : {"stat", "wchan", "syscall"}) {
        std::string line;
        std::getline(std::ifstream(task.path() / file), line);
        text += "\n  " + std::string(file) + ": " + line;
      }
    return text;
  }

  pid_t pid_;
};

/// A T of zeros at first that this process and the children that it forks see alike.
template <typename T>
class SharedWithChildren {
 public:
  SharedWithChildren()
      : value_(static_cast<T*>(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    if (value_ == MAP_FAILED)
      std::abort();
  }
  SharedWithChildren(const SharedWithChildren&) = delete;
  SharedWithChildren& operator=(const SharedWithChildren&) = delete;
  ~SharedWithChildren() { ::munmap(value_, sizeof(T)); }

  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }

 private:
  T* const value_;
};

/// A pipe through which processes tell each other that something happened.
class Signal {
 public:
  Signal() {
    if (::pipe(ends_) != 0)
      ADD_FAILURE() << "no pipe";
  }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  void raise() const { EXPECT_EQ(::write(ends_[1], "x", 1), 1); }
  /// One wait takes one raise. The test fails if none comes in two minutes.
  void wait() const {
    ::pollfd end{.fd = ends_[0], .events = POLLIN, .revents = 0};
    int ready = 0;
    do {
      ready = ::poll(&end, 1, 120'000);
    } while (ready < 0 && errno == EINTR);
    char c = 0;
    EXPECT_TRUE(ready == 1 && ::read(ends_[0], &c, 1) == 1) << "nobody raised it";
  }

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace kiln::test
