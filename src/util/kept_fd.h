// An owner for a descriptor that is kept for longer than a call. The host program may
// close descriptors that it does not know, as daemons and launchers do; from then on
// the number is a file of the host's, which must be neither written nor closed.

#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "util/unique_fd.h"

namespace kiln {

/// Thread safety: is_ours() and get() may run concurrently.
class KeptFd {
 public:
  KeptFd() = default;
  /// Remembers what `fd` is open on. Not explicit: it is the same descriptor, kept.
  KeptFd(UniqueFd fd) noexcept;  // NOLINT(google-explicit-constructor)
  KeptFd(KeptFd&& other) noexcept;
  KeptFd& operator=(KeptFd&& other) noexcept;
  KeptFd(const KeptFd&) = delete;
  KeptFd& operator=(const KeptFd&) = delete;
  ~KeptFd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ != -1; }

  /// True while the number is still open on what it was opened on. Asked before each
  /// write, lock and close; waits for no file system. The first false of a process is
  /// logged, each descriptor is counted once, and none becomes ours again.
  [[nodiscard]] bool is_ours() const noexcept;

  /// The number for the caller to close; -1 if it is not ours. Says nothing, so a
  /// handler of a fork may call it.
  [[nodiscard]] int release() noexcept;
  void reset() noexcept;

 private:
  struct Identity {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  [[nodiscard]] static std::optional<Identity> identity_of(int fd) noexcept;
  [[nodiscard]] bool is_same() const noexcept;

  int fd_ = -1;
  std::optional<Identity> opened_;  // none: the system does not say
  mutable std::atomic<bool> is_lost_ = false;
};

/// How many descriptors were lost since the last call.
[[nodiscard]] std::uint64_t take_lost_descriptors() noexcept;

}  // namespace kiln
