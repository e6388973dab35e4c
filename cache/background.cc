#include "cache/background.h"

#include <exception>
#include <utility>
#include <vector>

#include "util/kept_fd.h"
#include "util/log.h"
#include "util/open_objects.h"
#include "util/quiet_thread.h"

namespace kiln::cache {
namespace {

// All that arrives this soon after the first item is one batch.
constexpr std::chrono::milliseconds kGather{20};
constexpr std::chrono::milliseconds kLastWrite{1500};
// For the lock of the counter file, which is held for microseconds unless its holder
// hangs. The last write has no next batch to carry the counts, so it gets more time.
constexpr std::chrono::milliseconds kCountLimit{20};
constexpr std::chrono::milliseconds kLastCountLimit{200};
// A long-busy index must not make the list grow for ever; a dropped entry is found
// again when its folder is read.
constexpr std::size_t kMostPending = 10'000;

}  // namespace

Background::Background(Index* index, CounterFile* counter_file, Counters& counters,
                       MaybeTrim maybe_trim, std::chrono::milliseconds count_every)
    : index_(index),
      counter_file_(counter_file),
      counters_(counters),
      maybe_trim_(std::move(maybe_trim)),
      count_every_(count_every) {
  OpenObjects<Background>::add(this, end_all);
}

Background::~Background() {
  OpenObjects<Background>::remove(this);
  std::optional<std::thread> thread;
  stop_.request_stop();
  if (index_ != nullptr)
    index_->stop_rebuild();
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    thread = std::move(thread_);
    wake_.notify_all();
  }
  if (thread)
    thread->join();
  else
    try_work({}, kLastCountLimit);  // there may be counts without a thread
}

/// With the mutex, so that none is destroyed meanwhile: that waits for kLastCountLimit.
/// On the calling thread: a thread that has other work could call the host's own writer
/// of the log, which may have ended.
void Background::end_all() noexcept {
  const auto deadline = std::chrono::steady_clock::now() + kLastCountLimit;
  OpenObjects<Background>::with_all([&](const std::vector<Background*>& all) {
    for (Background* const each : all) {
      if (!each->in_child())
        each->try_work({}, std::chrono::duration_cast<std::chrono::milliseconds>(
                               deadline - std::chrono::steady_clock::now()));
    }
  });
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

void Background::counted() {
  if (in_child())
    return;
  const MutexLock lock(mutex_);
  start();
}

bool Background::flush(std::chrono::milliseconds limit) {
  if (in_child())
    return false;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const MutexLock lock(mutex_);
  const std::uint64_t mine = ++flushes_requested_;
  start();
  while (flushes_done_ < mine) {
    if (!done_.wait_until(mutex_, deadline))
      return flushes_done_ >= mine;
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
    std::uint64_t requested = 0;
    bool last = false;
    {
      const MutexLock lock(mutex_);
      const auto due = std::chrono::steady_clock::now() + count_every_;
      while (pending_.empty() && flushes_requested_ == flushes_done_ && !stopping_ &&
             wake_.wait_until(mutex_, due)) {
      }
      const auto deadline = std::chrono::steady_clock::now() + kGather;
      while (flushes_requested_ == flushes_done_ && !stopping_ &&
             wake_.wait_until(mutex_, deadline)) {
      }
      batch = std::exchange(pending_, {});
      requested = flushes_requested_;
      last = stopping_;
    }
    try_work(batch, last ? kLastCountLimit : kCountLimit);
    const MutexLock lock(mutex_);
    flushes_done_ = requested;
    done_.notify_all();
    if (last)
      return;
  }
}

/// At exit a busy index gets more time: many processes may have started together, and
/// one of them is creating it. Lost rows come back when their folder is read, but until
/// then the totals, and so the size check, miss them.
void Background::write_rows(const Index::Batch& batch) {
  const auto deadline = std::chrono::steady_clock::now() + kLastWrite;
  for (;;) {
    const auto written = index_->write(batch);  // counts its failures
    if (written || written.error().code != ErrorCode::kUnavailable || in_child() ||
        !stop_.stop_requested() || std::chrono::steady_clock::now() >= deadline)
      return;
    std::this_thread::sleep_for(kGather);
  }
}

/// An exception, such as bad_alloc, must not end the host program: lost rows come back
/// when their folder is read, lost counts do not.
void Background::try_work(const Index::Batch& batch,
                          std::chrono::milliseconds count_limit) noexcept {
  try {
    work(batch, count_limit);
  } catch (const std::exception& error) {
    log(LogLevel::kDebug, {"index and counters are not written: ", error.what()});
  } catch (...) {
    log(LogLevel::kDebug, {"index and counters are not written"});
  }
}

void Background::work(const Index::Batch& batch,
                      std::chrono::milliseconds count_limit) {
  // Without new rows the index stays closed.
  if (index_ != nullptr && !batch.empty())
    write_rows(batch);
  std::uint64_t bytes = 0;
  for (const Entry& entry : batch.published) bytes += entry.size_bytes;
  if (bytes > 0)
    maybe_trim_(bytes, stop_.get_token());
  write_counts(count_limit);  // last: index and trim count, too
}

void Background::write_counts(std::chrono::milliseconds limit) {
  if (counter_file_ == nullptr)
    return;
  if (const std::uint64_t lost = take_lost_descriptors(); lost > 0)
    counters_.add(Counter::kDescriptorsLost, lost);
  const MutexLock lock(counts_mutex_);
  for (const auto& [name, n] : counters_.take_unwritten()) unwritten_[name] += n;
  // After a failure the next batch carries the counts. If there is none they are lost:
  // a count is not worth a failure.
  const auto added = counter_file_->add(unwritten_, limit);
  if (added)
    unwritten_.clear();
  else if (added.error().code == ErrorCode::kUntrusted &&
           !std::exchange(is_refused_, true))
    counters_.add_if_untrusted(added.error());  // once, and not for each batch
}

}  // namespace kiln::cache
