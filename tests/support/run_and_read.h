// A function that runs in a forked child and says in words how it went.

#pragma once

#include <poll.h>
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

/// What `body` returned in a forked child. One that takes longer than `limit` is
/// killed; then, and after a crash, the text says so.
template <typename Body>
[[nodiscard]] std::string run_and_read(
    const Body& body, std::chrono::seconds limit = std::chrono::seconds(30)) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0)
    return "no pipe";
  ChildProcess child([&] {
    ::close(ends[0]);
    const std::string text = body();
    const auto size = static_cast<ssize_t>(text.size());
    return ::write(ends[1], text.data(), text.size()) == size ? 0 : 3;
  });
  ::close(ends[1]);
  std::string text;
  const bool ended = read_to_end(ends[0], limit, text);
  ::close(ends[0]);
  if (!ended)
    return "it did not end within " + std::to_string(limit.count()) + " s";
  if (const int code = child.wait(); code != 0)
    text += "it ended with " + std::to_string(code);
  return text;
}

}  // namespace kiln::test
