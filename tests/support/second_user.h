// Code that runs as really another user, for tests of who may do what to whom. Only
// root can become somebody else: ordinary users skip those tests.

#pragma once

#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>

#include "tests/support/child_process.h"

namespace kiln::test {

/// Reads from `fd` until its other end is closed; false when that takes longer than
/// `limit`.
inline bool read_to_end(int fd, std::chrono::milliseconds limit, std::string& text) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    if (left.count() <= 0 ||
        (::poll(&ready, 1, static_cast<int>(left.count())) < 0 && errno != EINTR))
      return false;
    if (ready.revents == 0)
      continue;
    std::array<char, 4096> chunk{};
    const ssize_t n = ::read(fd, chunk.data(), chunk.size());
    if (n <= 0)
      return n == 0;
    text.append(chunk.data(), static_cast<std::size_t>(n));
  }
}

class User {
 public:
  constexpr explicit User(uid_t uid) : uid_(uid) {}

  [[nodiscard]] static bool can_become_another() { return ::geteuid() == 0; }

  [[nodiscard]] uid_t uid() const { return uid_; }

  /// Runs `body` as this user, with the group of the same number, in a forked child.
  /// What it returns is what is wrong, "" if nothing is. One that takes longer than
  /// `limit` is killed; that is wrong as well, and so is a crash.
  template <typename Body>
  [[nodiscard]] std::string run(
      const Body& body, std::chrono::seconds limit = std::chrono::seconds(5)) const {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0)
      return "no pipe";
    ChildProcess child([&] {
      ::close(ends[0]);
      if (!become())
        return 2;
      const std::string wrong = body();
      const auto size = static_cast<ssize_t>(wrong.size());
      return ::write(ends[1], wrong.data(), wrong.size()) == size ? 0 : 3;
    });
    ::close(ends[1]);
    std::string wrong;
    const bool ended = read_to_end(ends[0], limit, wrong);
    ::close(ends[0]);
    if (!ended)
      return "it did not end within " + std::to_string(limit.count()) + " s";
    if (const int code = child.wait(); code != 0)
      wrong += "it ended with " + std::to_string(code);
    return wrong;
  }

 private:
  [[nodiscard]] bool become() const {
    return ::setgroups(0, nullptr) == 0 && ::setresgid(uid_, uid_, uid_) == 0 &&
           ::setresuid(uid_, uid_, uid_) == 0 &&
           ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0;  // as one who logged in
  }

  uid_t uid_;
};

}  // namespace kiln::test
