// The objects of a class that are open, for the end of the process: many hosts, such as
// Python, end without closing any.

#pragma once

#include <cstdlib>
#include <tuple>
#include <vector>

#include "util/fork_mutex.h"
#include "util/mutex.h"

namespace kiln {

/// Thread safety: every method may run concurrently. Fork safety: a fork waits for
/// with_all(); a forked child has the list of its parent.
template <typename T>
class OpenObjects {
 public:
  /// `at_exit` is called once, at the end of the process; without memory never.
  static void add(T* object, void (*at_exit)()) {
    static const bool is_registered = [at_exit] {
      hold_over_forks<mutex>();
      return std::atexit(at_exit) == 0;
    }();
    std::ignore = is_registered;
    State& open = state();
    const MutexLock lock(open.mutex);
    open.all.push_back(object);
  }

  /// False: it is none of them any more.
  static bool remove(T* object) {
    State& open = state();
    const MutexLock lock(open.mutex);
    return std::erase(open.all, object) != 0;
  }

  /// Calls `use` with a vector of them; until it returns none is removed.
  template <typename Use>
  static void with_all(const Use& use) {
    State& open = state();
    const MutexLock lock(open.mutex);
    use(open.all);
  }

 private:
  struct State {
    Mutex mutex;
    std::vector<T*> all KILN_GUARDED_BY(mutex);
  };

  /// Never destroyed.
  static State& state() {
    // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): has a mutex
    static auto* const instance = new State;
    return *instance;
  }
  static Mutex& mutex() { return state().mutex; }
};

}  // namespace kiln
