#include "cache/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <atomic>
#include <memory>
#include <system_error>
#include <tuple>
#include <utility>

#include "util/fork_count.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

constexpr int kFirstSafeWal = 3'051'003;

/// What this process inherited when it was forked.
struct ForkState {
  OwnerProcess process{};
  int inherited = 0;  // databases that the parent had open when it forked
};

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): of the process
std::atomic<int> open_databases = 0;  // each from before its open to its close
std::atomic<const ForkState*> fork_state = nullptr;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

/// Called before a process opens its first database: any open one was inherited.
const ForkState& current_fork_state() {
  const ForkState* current = fork_state.load();
  while (current == nullptr || !current->process.is_this()) {
    auto mine =
        std::make_unique<const ForkState>(ForkState{.inherited = open_databases});
    if (fork_state.compare_exchange_strong(current, mine.get()))
      return *mine.release();  // never freed
  }
  return *current;
}

tl::unexpected<Error> sqlite_error(int code, sqlite3* database) {
  const char* const text =
      database != nullptr ? ::sqlite3_errmsg(database) : ::sqlite3_errstr(code);
  std::string message = fmt::format("index: {}", text);
  switch (code & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return fail(ErrorCode::kUnavailable, std::move(message));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR:  // such as a missing table
    case SQLITE_SCHEMA:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_FORMAT:
      return fail(ErrorCode::kCorrupt, std::move(message));
    default:
      return fail(ErrorCode::kIo, std::move(message));
  }
}

}  // namespace

bool wal_is_safe() {
  return ::sqlite3_libversion_number() >= kFirstSafeWal;
}

bool sqlite_is_usable() {
  return current_fork_state().inherited == 0;
}

void Database::Closer::operator()(sqlite3* database) const noexcept {
  ::sqlite3_close_v2(database);
  --open_databases;
}

Result<Database> Database::open(const std::filesystem::path& path, Open how,
                                std::chrono::milliseconds busy_limit) {
  if (!sqlite_is_usable())
    return fail(ErrorCode::kUnavailable, "index: SQLite is the parent process's");
  // NOMUTEX: the owner serializes its calls with its own mutex.
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW |
                    (how == Open::kNew ? SQLITE_OPEN_CREATE : 0);
  // SQLite's NOFOLLOW refuses links in every component; we refuse one only in the last.
  std::error_code error;  // SQLite reports it as well
  const auto folder = std::filesystem::canonical(path.parent_path(), error);
  const auto real = error ? path : folder / path.filename();
  sqlite3* raw = nullptr;
  ++open_databases;
  const int code = ::sqlite3_open_v2(real.c_str(), &raw, flags, nullptr);
  Database database(raw);  // a failed open returns a handle, too, if there is memory
  if (raw == nullptr)
    --open_databases;
  if (code != SQLITE_OK)
    return sqlite_error(code, raw);
  ::sqlite3_busy_timeout(raw, static_cast<int>(busy_limit.count()));
  return database;
}

Result<void> Database::execute(const char* sql) const {
  const int code = ::sqlite3_exec(raw_.get(), sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK)
    return sqlite_error(code, raw_.get());
  return {};
}

Result<Statement> Database::prepare(std::string_view sql) const {
  sqlite3_stmt* raw = nullptr;
  const int code = ::sqlite3_prepare_v2(raw_.get(), sql.data(),
                                        static_cast<int>(sql.size()), &raw, nullptr);
  if (code != SQLITE_OK)
    return sqlite_error(code, raw_.get());
  return Statement(raw);
}

Result<std::int64_t> Database::number(std::string_view sql) const {
  Statement statement = KILN_TRY(prepare(sql));
  if (!KILN_TRY(statement.step()))
    return fail(ErrorCode::kCorrupt, "index: no row for {}", sql);
  return statement.number(0);
}

void Statement::Finalizer::operator()(sqlite3_stmt* statement) const noexcept {
  ::sqlite3_finalize(statement);  // repeats the error of the last step
}

Statement& Statement::bound(int code) {
  bind_code_ = bind_code_ != SQLITE_OK ? bind_code_ : code;
  return *this;
}

Statement& Statement::bind(std::int64_t value) {
  return bound(::sqlite3_bind_int64(raw_.get(), ++bound_, value));
}

Statement& Statement::bind(std::string_view text) {
  // SQLite binds a null pointer as NULL, whatever its length.
  const char* const data = text.empty() ? "" : text.data();
  return bound(::sqlite3_bind_text(raw_.get(), ++bound_, data,
                                   static_cast<int>(text.size()), SQLITE_TRANSIENT));
}

Statement& Statement::bind(ByteView blob) {
  const void* const data = blob.empty() ? "" : static_cast<const void*>(blob.data());
  return bound(
      ::sqlite3_bind_blob64(raw_.get(), ++bound_, data, blob.size(), SQLITE_TRANSIENT));
}

Result<bool> Statement::step() {
  sqlite3* const database = ::sqlite3_db_handle(raw_.get());
  if (bind_code_ != SQLITE_OK)
    return sqlite_error(std::exchange(bind_code_, SQLITE_OK), database);
  const int code = ::sqlite3_step(raw_.get());
  if (code != SQLITE_ROW && code != SQLITE_DONE)
    return sqlite_error(code, database);
  return code == SQLITE_ROW;
}

Result<void> Statement::run() {
  Result<bool> more = step();
  while (more && *more) more = step();
  ::sqlite3_reset(raw_.get());  // repeats the error of the last step
  bound_ = 0;
  if (!more)
    return tl::unexpected(std::move(more).error());
  return {};
}

std::int64_t Statement::number(int column) const {
  return ::sqlite3_column_int64(raw_.get(), column);
}

std::string_view Statement::text(int column) const {
  return as_text(blob(column));
}

ByteView Statement::blob(int column) const {
  const void* const data = ::sqlite3_column_blob(raw_.get(), column);
  const int size = ::sqlite3_column_bytes(raw_.get(), column);
  return {static_cast<const std::byte*>(data),
          data != nullptr ? static_cast<std::size_t>(size) : 0};
}

Result<Transaction> Transaction::begin(const Database& database) {
  KILN_TRY(database.execute("BEGIN IMMEDIATE"));
  return Transaction(database);
}

Result<void> Transaction::commit() {
  KILN_TRY(database_.get()->execute("COMMIT"));
  database_.release();
  return {};
}

void Transaction::Rollback::close(Raw database) noexcept {
  std::ignore = database->execute("ROLLBACK");  // SQLite may have done it already
}

}  // namespace kiln::cache
