#include "util/kept_fd.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <utility>

#include "util/log.h"

namespace kiln {
namespace {

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): of the process
std::atomic<std::uint64_t> lost_descriptors = 0;
std::atomic<bool> has_told_of_lost = false;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

KeptFd::KeptFd(UniqueFd fd) noexcept : fd_(fd.release()), opened_(identity_of(fd_)) {}

KeptFd::KeptFd(KeptFd&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      opened_(other.opened_),
      is_lost_(other.is_lost_.load()) {}

KeptFd& KeptFd::operator=(KeptFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    opened_ = other.opened_;
    is_lost_ = other.is_lost_.load();
  }
  return *this;
}

/// Without asking a server: what an open descriptor is does not change.
std::optional<KeptFd::Identity> KeptFd::identity_of(int fd) noexcept {
  struct statx asked {};
  if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &asked) == 0)
    return Identity{::makedev(asked.stx_dev_major, asked.stx_dev_minor), asked.stx_ino};
  struct stat info {};  // a filter of system calls may refuse the newer one
  if (::fstat(fd, &info) == 0)
    return Identity{info.st_dev, info.st_ino};
  return std::nullopt;
}

bool KeptFd::is_same() const noexcept {
  return fd_ != -1 && (!opened_ || identity_of(fd_) == opened_);
}

bool KeptFd::is_ours() const noexcept {
  if (is_lost_)
    return false;
  if (is_same())
    return true;
  if (fd_ == -1 || is_lost_.exchange(true))
    return false;
  ++lost_descriptors;
  if (!has_told_of_lost.exchange(true))
    log(LogLevel::kWarning,
        {"this program has closed a descriptor of Kiln, and Kiln goes on without it: "
         "close only descriptors that you have opened"});
  return false;
}

int KeptFd::release() noexcept {
  const bool is_ours = !is_lost_ && is_same();
  const int fd = std::exchange(fd_, -1);
  return is_ours ? fd : -1;
}

void KeptFd::reset() noexcept {
  if (const int fd = release(); fd != -1)
    FdTraits::close(fd);
}

std::uint64_t take_lost_descriptors() noexcept {
  return lost_descriptors.exchange(0);
}

}  // namespace kiln
