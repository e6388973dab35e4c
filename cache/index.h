// index.sqlite: what `ls`, the totals of `stats` and the size limit are answered from.
// A hint, never asked on a hit, deletable at any time, rebuilt from the objects, and
// never used on a network file system. FORMAT.md, "Index".

#pragma once

#include <cstdint>
#include <filesystem>
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

namespace kiln::cache {

struct Totals {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
};

/// Thread safety: every method may run concurrently; they take turns.
/// Fork safety: in a forked child every method is kUnavailable, and the parent's
/// connection is left alone.
class Index {
 public:
  /// A change to write down. Losing one costs nothing but a folder read again.
  struct Batch {
    std::vector<Entry> published{};
    std::vector<std::pair<Digest, std::int64_t>> used{};  // key, unix ns

    [[nodiscard]] bool empty() const { return published.empty() && used.empty(); }
  };

  /// Opens nothing yet. The references must outlive the index.
  Index(const Layout& layout, FileSystem& file_system, const ObjectStore& store,
        const LockFolder& locks, Counters& counters);
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;
  Index(Index&&) = delete;
  Index& operator=(Index&&) = delete;
  ~Index();

  /// One transaction. Errors: kIo, kCorrupt, kUnavailable (busy for too long, or
  /// somebody else is rebuilding it); all of them counted.
  [[nodiscard]] Result<void> write(const Batch& batch);

  /// Re-reads every folder whose modification time is not the noted one. `stop` ends it
  /// after the folder at hand. Errors: as write().
  [[nodiscard]] Result<void> refresh(const std::stop_token& stop);

  /// Refreshes, then asks. Errors: as write().
  [[nodiscard]] Result<std::vector<Entry>> list(const ListQuery& query);
  /// Without refreshing; constant time.
  [[nodiscard]] Result<Totals> totals();

  /// From now on a refresh stops at the next folder: the process wants to end. What is
  /// missing is read by whoever comes next.
  void hurry();

 private:
  class Connection;
  struct FileId;
  struct State;

  template <typename Ask>
  [[nodiscard]] std::invoke_result_t<Ask, Connection&> ask(const Ask& question);
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
  const std::unique_ptr<State> state_;
};

}  // namespace kiln::cache
