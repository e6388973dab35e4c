#include "util/file_size_limit.h"

#include <pthread.h>

#include <cerrno>
#include <ctime>
#include <tuple>

namespace kiln {
namespace {

sigset_t file_size_signal() {
  sigset_t set{};
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGXFSZ);
  return set;
}

bool is_pending() {
  sigset_t pending{};
  return ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGXFSZ) == 1;
}

}  // namespace

NoFileSizeSignal::NoFileSizeSignal() {
  const sigset_t set = file_size_signal();
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  // One that the host had blocked is the host's.
  was_pending_ = ::sigismember(&before_, SIGXFSZ) == 1 && is_pending();
}

NoFileSizeSignal::~NoFileSizeSignal() {
  const int err = errno;
  if (!was_pending_ && is_pending()) {
    const sigset_t set = file_size_signal();
    const timespec at_once{};
    std::ignore = ::sigtimedwait(&set, nullptr, &at_once);
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = err;
}

}  // namespace kiln
