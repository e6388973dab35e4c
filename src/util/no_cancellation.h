// Keeps pthread_cancel() out of a call of the library.

#pragma once

#include <pthread.h>

#include <tuple>

namespace kiln {

/// While it exists, pthread_cancel() does not end this thread: that unwinds the stack,
/// which must not pass a destructor, or code that may not leave things half done. A
/// cancellation that was asked for meanwhile happens at the host's next cancellation
/// point.
class NoCancellation {
 public:
  NoCancellation() noexcept {
    std::ignore = ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
  }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;
  ~NoCancellation() { std::ignore = ::pthread_setcancelstate(before_, nullptr); }

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace kiln
