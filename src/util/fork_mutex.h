// A mutex that no forked child finds locked by a thread that it does not have.

#pragma once

#include <pthread.h>

#include <tuple>

#include "util/mutex.h"

namespace kiln {

/// What a fork does with `mutex()`. The analysis cannot know that it stays locked from
/// one handler to the next.
template <Mutex& (*mutex)()>
struct ForkHandlers {
  static void before() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
    mutex().lock();
  }
  static void after() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
    mutex().unlock();
  }
};

/// From now on a fork waits for whoever holds `mutex()`, and parent and child have it
/// unlocked afterwards. To be called once, before its first use.
template <Mutex& (*mutex)()>
void hold_over_forks() {
  // It fails for want of memory alone; then a child may wait for ever.
  std::ignore =
      ::pthread_atfork(ForkHandlers<mutex>::before, ForkHandlers<mutex>::after,
                       ForkHandlers<mutex>::after);
}

}  // namespace kiln
