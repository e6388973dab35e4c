// index.sqlite: answers `ls`, the totals of `stats` and the size check. A hint: never
// used for a hit, deletable at any time, rebuilt from the objects. Never used on a
// network file system. FORMAT.md, "Index".

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cache/counters.h"
#include "cache/entry.h"
#include "cache/lock_folder.h"
#include "cache/object_store.h"
#include "kiln/result.h"
#include "util/fork_count.h"
#include "util/mutex.h"

namespace kiln::cache {

struct Totals {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
};
/// Of each kind that has entries.
using KindTotals = std::map<Kind, Totals>;

/// Thread safety: every method may run concurrently; calls are serialized.
/// The database is open during a call alone.
/// Fork safety: in a forked child every method returns kUnavailable.
class Index {
 public:
  /// Changes to write. Losing a batch only costs reading a folder again.
  struct Batch {
    std::vector<Entry> published{};
    std::vector<std::pair<Digest, std::int64_t>> used{};  // key, unix ns

    [[nodiscard]] bool empty() const { return published.empty() && used.empty(); }
  };

  /// Opens nothing yet. The references must outlive the index.
  Index(const Layout& layout, FileSystem& file_system, const ObjectStore& store,
        const LockFolder& locks, Counters& counters);

  /// One transaction. Errors: kIo, kCorrupt, kUnavailable (busy for too long, or
  /// another process is rebuilding the index); all are counted.
  [[nodiscard]] Result<void> write(const Batch& batch);

  /// Re-reads every folder whose modification time is not the recorded one. `stop` ends
  /// it after the current folder. Errors: as write().
  [[nodiscard]] Result<void> refresh(const std::stop_token& stop);

  /// Refreshes, then queries. Errors: as write().
  [[nodiscard]] Result<std::vector<Entry>> list(const ListQuery& query);
  /// Without refreshing; constant time.
  [[nodiscard]] Result<Totals> totals();
  /// Refreshes, then reads every row. Errors: as write().
  [[nodiscard]] Result<KindTotals> totals_by_kind();

  /// The process is about to exit: a rebuild stops at the next folder from now on. The
  /// next refresh reads the other folders.
  void stop_rebuild() { rebuild_stop_.request_stop(); }

 private:
  class Connection;
  struct FileId;

  template <typename Action>
  [[nodiscard]] std::invoke_result_t<Action, Connection&> with_connection(
      const Action& action);
  [[nodiscard]] Result<std::unique_ptr<Connection>> open(const FileId& rejected);
  [[nodiscard]] Result<void> rebuild(const FileId& rejected);
  [[nodiscard]] Result<void> build_new(const std::string& path);
  [[nodiscard]] FileId file_id() const;
  [[nodiscard]] bool is_foreign(const std::string& path) const;
  void clear_away_foreign() const;

  const Layout& layout_;
  FileSystem& file_system_;
  const ObjectStore& store_;
  const LockFolder& locks_;
  Counters& counters_;
  const OwnerProcess owner_{};
  std::stop_source rebuild_stop_;
  Mutex mutex_;  // one call at a time
};

}  // namespace kiln::cache
