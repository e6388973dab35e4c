#include "cache/index.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <tuple>

#include "cache/index_schema.h"
#include "cache/owned_range.h"
#include "cache/sqlite.h"
#include "cache/unix_time.h"
#include "util/posix_error.h"
#include "util/proc_file.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

constexpr std::chrono::milliseconds kBusyLimit{500};
constexpr std::chrono::milliseconds kHeartbeat{1000};
// A folder that changed this recently may change again and keep its modification time.
constexpr std::int64_t kSettledNs = 2'000'000'000;
constexpr std::int64_t kUnsettled = -1;
constexpr std::array kSqliteSuffixes{"-journal", "-wal", "-shm"};

/// The boot id of the running kernel; empty if it cannot be read, as in some sandboxes.
std::string boot_id() {
  return read_proc_file("/proc/sys/kernel/random/boot_id").value_or("");
}

}  // namespace

struct Index::FileId {
  dev_t device = 0;
  ino_t inode = 0;  // 0: there is no file
  friend bool operator==(const FileId&, const FileId&) = default;
};

/// One open database that has our tables.
class Index::Connection {
 public:
  Connection(Database opened, const FileId& file)
      : database(std::move(opened)), id(file) {}

  [[nodiscard]] Result<void> write(const Batch& batch) const;
  [[nodiscard]] Result<void> refresh(const Layout& layout, FileSystem& file_system,
                                     const ObjectStore& store,
                                     const std::stop_token& stop) const;

  Database database;
  FileId id;

 private:
  [[nodiscard]] Result<void> read_again(unsigned folder, std::int64_t mtime_ns,
                                        const ObjectStore& store) const;
};

Result<void> Index::Connection::write(const Batch& batch) const {
  Transaction transaction = KILN_TRY(Transaction::begin(database));
  Statement insert = KILN_TRY(database.prepare(schema::kInsertEntry));
  for (const Entry& entry : batch.published) KILN_TRY(schema::insert(insert, entry));
  Statement use = KILN_TRY(database.prepare(schema::kMarkUsed));
  for (const auto& [key, used_ns] : batch.used)
    KILN_TRY(use.bind(used_ns).bind(key.bytes()).run());
  return transaction.commit();
}

Result<void> Index::Connection::refresh(const Layout& layout, FileSystem& file_system,
                                        const ObjectStore& store,
                                        const std::stop_token& stop) const {
  std::array<std::optional<std::int64_t>, kFolderCount> noted;
  Statement select = KILN_TRY(database.prepare(schema::kSelectFolders));
  while (KILN_TRY(select.step())) {
    const std::int64_t number = select.number(0);
    if (number < 0 || number >= static_cast<std::int64_t>(kFolderCount))
      return fail(ErrorCode::kCorrupt, "index: a folder with an impossible number");
    noted[static_cast<std::size_t>(number)] = select.number(1);
  }
  for (unsigned folder = 0; folder < kFolderCount && !stop.stop_requested(); ++folder) {
    struct stat info {};
    const std::string path = layout.object_folder(folder);
    const int err = file_system.stat(path.c_str(), info);
    if (err == -ENOENT && !noted[folder])
      continue;
    if (err != 0 && err != -ENOENT)
      return posix_error("stat", path, -err);
    const std::int64_t mtime_ns = err == 0 ? to_ns(info.st_mtim) : kUnsettled;
    if (noted[folder] != mtime_ns || mtime_ns == kUnsettled)
      KILN_TRY(read_again(folder, mtime_ns, store));
  }
  return {};
}

Result<void> Index::Connection::read_again(unsigned folder, std::int64_t mtime_ns,
                                           const ObjectStore& store) const {
  std::vector<Digest> there = KILN_TRY(store.list_keys(folder));
  std::ranges::sort(there);
  Transaction transaction = KILN_TRY(Transaction::begin(database));
  std::vector<Digest> known;
  Statement select = KILN_TRY(database.prepare(schema::kSelectKeys));
  select.bind(std::int64_t{folder});
  while (KILN_TRY(select.step())) known.push_back(KILN_TRY(schema::key(select, 0)));
  std::ranges::sort(known);
  Statement remove = KILN_TRY(database.prepare(schema::kDeleteEntry));
  for (const Digest& key : known) {
    if (!std::ranges::binary_search(there, key))
      KILN_TRY(remove.bind(key.bytes()).run());
  }
  Statement insert = KILN_TRY(database.prepare(schema::kInsertEntry));
  for (const Digest& key : there) {
    if (std::ranges::binary_search(known, key))
      continue;
    // An unreadable object is left out; a hit or verify will deal with it.
    const auto entry = store.describe(key);
    if (entry && *entry)
      KILN_TRY(schema::insert(insert, **entry));
  }
  const bool settled = unix_now_ns() - mtime_ns > kSettledNs;
  Statement note = KILN_TRY(database.prepare(schema::kNoteFolder));
  KILN_TRY(note.bind(std::int64_t{folder}).bind(settled ? mtime_ns : kUnsettled).run());
  return transaction.commit();
}

Index::Index(const Layout& layout, FileSystem& file_system, const ObjectStore& store,
             const LockFolder& locks, Counters& counters)
    : layout_(layout),
      file_system_(file_system),
      store_(store),
      locks_(locks),
      counters_(counters) {}

Index::FileId Index::file_id() const {
  struct stat info {};
  if (file_system_.lstat(layout_.index().c_str(), info) != 0)
    return {};
  return {info.st_dev, info.st_ino};
}

/// True, and counted, if SQLite must not open `path`: it follows links, blocks on
/// FIFOs, and truncates what it takes for a journal.
bool Index::is_foreign(const std::string& path) const {
  const bool refused = store_.trust().refuses(file_system_, path);
  if (refused)
    counters_.add(Counter::kUntrusted);
  return refused;
}

/// Removes foreign files that SQLite would open beside the index. Unlinks no name that
/// was free: by now it may be another process's journal.
void Index::clear_away_foreign() const {
  for (const char* suffix : kSqliteSuffixes) {
    const std::string path = layout_.index().native() + suffix;
    if (is_foreign(path))
      std::ignore =
          file_system_.unlink(path.c_str());  // if it fails, SQLite reports it
  }
}

/// Opens the database, runs `action` on it and closes it; rebuilds a corrupt one and
/// runs it once more. It is open for no longer, because SQLite writes to descriptors
/// that it remembers, and the host may have closed them and opened files of its own.
template <typename Action>
std::invoke_result_t<Action, Index::Connection&> Index::with_connection(
    const Action& action) {
  const auto run_or_rebuild = [&]() -> std::invoke_result_t<Action, Connection&> {
    auto connection = KILN_TRY(open(FileId{}));
    auto answer = action(*connection);
    if (answer || answer.error().code != ErrorCode::kCorrupt)
      return answer;
    const FileId rejected = connection->id;
    connection.reset();
    connection = KILN_TRY(open(rejected));
    return action(*connection);
    // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): a unique_ptr has it
  };
  // SQLite's own locks may be held by a thread that does not exist in the child.
  if (!owner_.is_this())
    return fail(ErrorCode::kUnavailable, "index: not used in a forked child");
  const MutexLock lock(mutex_);
  auto answer = run_or_rebuild();
  if (!answer)
    counters_.add(Counter::kIndexFailed);
  return answer;
}

/// Opens the file, or rebuilds it if it is missing, is `rejected`, or is not ours.
Result<std::unique_ptr<Index::Connection>> Index::open(const FileId& rejected) {
  clear_away_foreign();
  for (int attempt = 0; attempt < 2; ++attempt) {
    const FileId id = file_id();
    FileId bad = id;
    if (id.inode != 0 && id != rejected && !is_foreign(layout_.index().native())) {
      auto database =
          Database::open(layout_.index(), Database::Open::kExisting, kBusyLimit);
      const auto ours = database ? schema::settle(*database, boot_id())
                                 : Result<void>(tl::unexpected(database.error()));
      if (ours && file_id() == id)
        return std::make_unique<Connection>(*std::move(database), id);
      if (!ours && ours.error().code != ErrorCode::kCorrupt)
        return tl::unexpected(ours.error());
      if (ours)
        continue;  // replaced between our lstat and our open
      bad = id;
    }
    if (attempt == 0)
      KILN_TRY(rebuild(bad));
  }
  return fail(ErrorCode::kUnavailable,
              "index: it changes faster than it can be opened");
}

Result<void> Index::rebuild(const FileId& rejected) {
  std::optional<OwnedRange> rebuild_lock;
  if (locks_.usable()) {
    auto owned =
        OwnedRange::try_own({&file_system_, locks_.path / "index", 0}, {}, kHeartbeat);
    if (owned && !*owned)
      return fail(ErrorCode::kUnavailable, "index: another process is rebuilding it");
    if (owned)
      rebuild_lock = *std::move(owned);
    else
      counters_.add_if_untrusted(owned.error());
    // Without locks two processes may rebuild at once; the last rename wins, and both
    // files are right.
  }
  if (const FileId now = file_id(); now.inode != 0 && now != rejected)
    return {};  // another process has just rebuilt it
  const std::string path = Layout::temporary_in(layout_.root().native());
  auto built = build_new(path);
  if (!built)
    std::ignore = file_system_.unlink(path.c_str());  // if it fails, trim sweeps it
  else if (rejected.inode != 0)
    counters_.add(Counter::kIndexRebuilt);
  return built;
}

Result<void> Index::build_new(const std::string& path) {
  {
    const Connection fresh(
        KILN_TRY(Database::open(path, Database::Open::kNew, kBusyLimit)), FileId{});
    KILN_TRY(schema::create(fresh.database, boot_id()));
    KILN_TRY(fresh.refresh(layout_, file_system_, store_, rebuild_stop_.get_token()));
  }
  // SQLite would take the journal and WAL of the old index for the new one's.
  const std::string index = layout_.index().native();
  for (const char* suffix : kSqliteSuffixes)
    std::ignore = file_system_.unlink((index + suffix).c_str());  // usually missing
  if (const int err = file_system_.rename(path.c_str(), index.c_str()); err != 0)
    return posix_error("rename", index, -err);
  return {};
}

Result<void> Index::write(const Batch& batch) {
  return with_connection(
      [&](Connection& connection) { return connection.write(batch); });
}

Result<void> Index::refresh(const std::stop_token& stop) {
  return with_connection([&](Connection& connection) {
    return connection.refresh(layout_, file_system_, store_, stop);
  });
}

Result<std::vector<Entry>> Index::list(const ListQuery& query) {
  return with_connection([&](Connection& connection) -> Result<std::vector<Entry>> {
    KILN_TRY(connection.refresh(layout_, file_system_, store_, {}));
    return schema::list(connection.database, query);
  });
}

Result<Totals> Index::totals() {
  return with_connection([&](Connection& connection) -> Result<Totals> {
    return schema::totals(connection.database);
  });
}

Result<KindTotals> Index::totals_by_kind() {
  return with_connection([&](Connection& connection) -> Result<KindTotals> {
    KILN_TRY(connection.refresh(layout_, file_system_, store_, {}));
    return schema::totals_by_kind(connection.database);
  });
}

}  // namespace kiln::cache
