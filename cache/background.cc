#include "cache/background.h"

#include <unistd.h>

#include <tuple>
#include <utility>

#include "util/quiet_thread.h"

namespace kiln::cache {
namespace {

// What arrives within this time of the first makes one batch.
constexpr std::chrono::milliseconds kGather{20};
constexpr std::chrono::milliseconds kLastWrite{1500};
// An index that is busy for long must not make the list grow for ever; what is dropped
// is found again when its folder is read.
constexpr std::size_t kMostPending = 10'000;

}  // namespace

Background::Background(Index* index, Counters& counters, MaybeTrim maybe_trim)
    : index_(index),
      counters_(counters),
      maybe_trim_(std::move(maybe_trim)),
      pid_(::getpid()) {}

Background::~Background() {
  std::optional<std::thread> thread;
  stop_.request_stop();
  if (index_ != nullptr)
    index_->hurry();
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    thread = std::move(thread_);
    wake_.notify_all();
  }
  if (thread)
    thread->join();
  else
    work({});  // a process that only had hits has counters to leave
}

bool Background::in_child() const {
  return ::getpid() != pid_;
}

void Background::published(Entry entry) {
  if (in_child())
    return;
  const MutexLock lock(mutex_);
  if (pending_.published.size() < kMostPending)
    pending_.published.push_back(std::move(entry));
  start();
}

void Background::used(const Digest& key, std::int64_t used_ns) {
  if (in_child() || index_ == nullptr)
    return;
  const MutexLock lock(mutex_);
  if (pending_.used.size() < kMostPending)
    pending_.used.emplace_back(key, used_ns);
  start();
}

bool Background::flush(std::chrono::milliseconds limit) {
  if (in_child())
    return false;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const MutexLock lock(mutex_);
  const std::uint64_t mine = ++asked_;
  start();
  while (answered_ < mine) {
    if (!done_.wait_until(mutex_, deadline))
      return answered_ >= mine;
  }
  return true;
}

void Background::start() {
  if (!thread_ && !stopping_)
    thread_ = start_quiet_thread([this] { run(); }, Thread::kJoinable);
  wake_.notify_one();
}

void Background::run() {
  for (;;) {
    Index::Batch batch;
    std::uint64_t asked = 0;
    bool last = false;
    {
      const MutexLock lock(mutex_);
      while (pending_.empty() && asked_ == answered_ && !stopping_) wake_.wait(mutex_);
      const auto deadline = std::chrono::steady_clock::now() + kGather;
      while (asked_ == answered_ && !stopping_ && wake_.wait_until(mutex_, deadline)) {
      }
      batch = std::exchange(pending_, {});
      asked = asked_;
      last = stopping_;
    }
    work(std::move(batch));
    const MutexLock lock(mutex_);
    answered_ = asked;
    done_.notify_all();
    if (last)
      return;
  }
}

/// At the end there is no next batch to carry the counters, so a busy index gets more
/// time: many processes may have started together, and one of them is creating it.
bool Background::write(const Index::Batch& batch) {
  const auto deadline = std::chrono::steady_clock::now() + kLastWrite;
  for (;;) {
    const auto written = index_->write(batch);
    if (written)
      return true;
    if (written.error().code != ErrorCode::kUnavailable || in_child() ||
        !stop_.stop_requested() || std::chrono::steady_clock::now() >= deadline)
      return false;
    std::this_thread::sleep_for(kGather);
  }
}

void Background::work(Index::Batch batch) {
  std::uint64_t bytes = 0;
  for (const Entry& entry : batch.published) bytes += entry.size_bytes;
  if (index_ != nullptr) {
    batch.counters = counters_.take_unwritten();
    for (const auto& [name, n] : std::exchange(unwritten_, {}))
      batch.counters[name] += n;
    // A failure is counted by the index; rows come back when their folder is read.
    if (!batch.empty() && !write(batch))
      unwritten_ = std::move(batch.counters);
  }
  if (bytes > 0)
    maybe_trim_(bytes, stop_.get_token());
}

}  // namespace kiln::cache
