// The work after a publish, on a thread of its own: update the index, trim a root that
// is over its limit, write the counts. What a process has counted without a publish is
// written every ten seconds if there is a thread, and when the process ends.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <thread>

#include "cache/counter_file.h"
#include "cache/counters.h"
#include "cache/entry.h"
#include "cache/index.h"
#include "util/fork_count.h"
#include "util/mutex.h"

namespace kiln::cache {

/// Thread safety: every method may run concurrently. The thread starts with the first
/// work.
/// Fork safety: in a forked child every method is a no-op that takes no lock, and the
/// object must be leaked: its thread does not exist there. The destructor writes what
/// is pending, and stops a trim at the next file.
class Background {
 public:
  /// Trims if needed. Called on the thread after each batch, with the bytes published
  /// in it.
  using MaybeTrim = std::function<void(std::uint64_t bytes, const std::stop_token&)>;

  static constexpr std::chrono::milliseconds kCountEvery{10'000};

  /// `index` and `counter_file` may be null. All must outlive this. The thread writes
  /// new counts after each batch and every `count_every`.
  Background(Index* index, CounterFile* counter_file, Counters& counters,
             MaybeTrim maybe_trim, std::chrono::milliseconds count_every = kCountEvery);
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background();

  void published(Entry entry);
  void used(const Digest& key, std::int64_t used_ns);
  /// Starts the thread, for counts where nothing is published.
  void counted();
  /// Waits, at most `limit`, until all work so far is done and the counts are written.
  /// False if it took longer.
  bool flush(std::chrono::milliseconds limit);
  /// True in a forked child.
  [[nodiscard]] bool in_child() const { return !owner_.is_this(); }

 private:
  static void end_all() noexcept;
  void start() KILN_REQUIRES(mutex_);
  void run();
  void try_work(const Index::Batch& batch,
                std::chrono::milliseconds count_limit) noexcept;
  void work(const Index::Batch& batch, std::chrono::milliseconds count_limit);
  void write_rows(const Index::Batch& batch);
  void write_counts(std::chrono::milliseconds limit);

  Index* const index_;
  CounterFile* const counter_file_;
  Counters& counters_;
  const MaybeTrim maybe_trim_;
  const std::chrono::milliseconds count_every_;
  const OwnerProcess owner_{};
  std::stop_source stop_;

  Mutex mutex_;
  ConditionVariable wake_;
  ConditionVariable done_;
  Index::Batch pending_ KILN_GUARDED_BY(mutex_);
  std::uint64_t flushes_requested_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t flushes_done_ KILN_GUARDED_BY(mutex_) = 0;
  bool stopping_ KILN_GUARDED_BY(mutex_) = false;
  std::optional<std::thread> thread_ KILN_GUARDED_BY(mutex_);

  Mutex counts_mutex_;  // of the thread, and of the end of the process
  CounterFile::Counts unwritten_ KILN_GUARDED_BY(counts_mutex_);  // of a failed write
  bool is_refused_ KILN_GUARDED_BY(counts_mutex_) = false;
};

}  // namespace kiln::cache
