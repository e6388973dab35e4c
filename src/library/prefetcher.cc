#include "library/prefetcher.h"

#include <utility>

#include "util/quiet_thread.h"

namespace kiln {

Prefetcher::~Prefetcher() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    ends_ = true;
    tasks_.clear();
    threads.swap(threads_);
  }
  stop_.request_stop();
  arrived_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

Result<void> Prefetcher::start(Task task) {
  const MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  if (idle_ < tasks_.size() && threads_.size() < most_.get()) {
    if (auto thread = start_quiet_thread([this] { work(); }, Thread::kJoinable))
      threads_.push_back(*std::move(thread));
  }
  if (threads_.empty()) {
    tasks_.pop_back();
    return fail(ErrorCode::kUnavailable,
                "the system has no thread left to prefetch with: raise its limit, or "
                "call get()");
  }
  arrived_.notify_one();
  return {};
}

void Prefetcher::work() {
  while (true) {
    Task task;
    {
      const MutexLock lock(mutex_);
      ++idle_;
      while (tasks_.empty() && !ends_) arrived_.wait(mutex_);
      --idle_;
      if (ends_)
        return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task(stop_.get_token());
  }
}

}  // namespace kiln
