// A mutex that is safe over forks: no child finds it locked by a thread of its parent.

#pragma once

#include <pthread.h>

#include <tuple>

#include "util/mutex.h"

namespace kiln {

/// The fork handlers for `mutex()`. Clang's analysis cannot see that it stays locked
/// from one handler to the next.
template <Mutex& (*mutex)()>
struct ForkHandlers {
  static void before() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
    mutex().lock();
  }
  static void after() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
    mutex().unlock();
  }
};

/// From now on a fork waits until `mutex()` is free, and leaves it unlocked in parent
/// and child. Call it once, before the mutex is first used.
template <Mutex& (*mutex)()>
void hold_over_forks() {
  // It fails only if there is no memory; then a child may block for ever.
  std::ignore =
      ::pthread_atfork(ForkHandlers<mutex>::before, ForkHandlers<mutex>::after,
                       ForkHandlers<mutex>::after);
}

}  // namespace kiln
