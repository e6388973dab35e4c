// A mutex that clang's -Wthread-safety understands. Every mutex of Kiln is one of
// these.

#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define KILN_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define KILN_THREAD_ANNOTATION(x)
#endif

#define KILN_CAPABILITY(x) KILN_THREAD_ANNOTATION(capability(x))
#define KILN_SCOPED_CAPABILITY KILN_THREAD_ANNOTATION(scoped_lockable)
#define KILN_GUARDED_BY(x) KILN_THREAD_ANNOTATION(guarded_by(x))
#define KILN_REQUIRES(...) KILN_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define KILN_ACQUIRE(...) KILN_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define KILN_RELEASE(...) KILN_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define KILN_EXCLUDES(...) KILN_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace kiln {

class KILN_CAPABILITY("mutex") Mutex {
 public:
  void lock() KILN_ACQUIRE() { mutex_.lock(); }
  void unlock() KILN_RELEASE() { mutex_.unlock(); }

 private:
  friend class ConditionVariable;
  std::mutex mutex_;
};

class KILN_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) KILN_ACQUIRE(mutex) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() KILN_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// The caller holds `mutex` around every wait, and loops: wake-ups may be spurious.
class ConditionVariable {
 public:
  void wait(Mutex& mutex) KILN_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  /// False when `deadline` passed.
  template <typename Clock, typename Duration>
  bool wait_until(Mutex& mutex,
                  const std::chrono::time_point<Clock, Duration>& deadline)
      KILN_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const bool notified =
        condition_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return notified;
  }

  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace kiln
