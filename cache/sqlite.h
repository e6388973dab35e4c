// RAII owners and Results over SQLite's C interface, and the only place that converts
// its error codes. Knows no table.

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "kiln/result.h"
#include "util/bytes.h"
#include "util/unique_handle.h"

struct sqlite3;
struct sqlite3_stmt;

namespace kiln::cache {

class Statement;

/// False in a process that was forked while a database was open: a thread that does not
/// exist here may hold SQLite's mutexes for ever, and the file locks that SQLite has
/// recorded are the parent's. Thread-safe.
[[nodiscard]] bool sqlite_is_usable();

/// Errors of every method here: kUnavailable (busy for too long; for open() also if
/// SQLite is not usable), kIo (disk full, permissions, I/O), kCorrupt (every error that
/// a new database would not have).
/// Thread safety: one thread at a time.
class Database {
 public:
  enum class Open : std::uint8_t { kExisting, kNew };

  [[nodiscard]] static Result<Database> open(const std::filesystem::path& path,
                                             Open how,
                                             std::chrono::milliseconds busy_limit);

  [[nodiscard]] Result<void> execute(const char* sql) const;
  [[nodiscard]] Result<Statement> prepare(std::string_view sql) const;
  /// The first column of the first row; kCorrupt if there is none.
  [[nodiscard]] Result<std::int64_t> number(std::string_view sql) const;

 private:
  struct Closer {
    void operator()(sqlite3* database) const noexcept;
  };
  explicit Database(sqlite3* raw) : raw_(raw) {}

  std::unique_ptr<sqlite3, Closer> raw_;
};

/// Thread safety: as its Database, which must outlive it. Columns are valid until the
/// next step(); bind() copies its argument.
class Statement {
 public:
  Statement& bind(std::int64_t value);
  Statement& bind(std::uint64_t value) {
    return bind(static_cast<std::int64_t>(value));
  }
  Statement& bind(std::string_view text);
  Statement& bind(ByteView blob);
  template <typename... Values>
  requires(sizeof...(Values) > 1) Statement& bind(const Values&... values) {
    return (bind(values), ...);
  }

  /// True if there is a row.
  [[nodiscard]] Result<bool> step();
  /// Steps to the end, then resets the statement for the next parameters.
  [[nodiscard]] Result<void> run();

  [[nodiscard]] std::int64_t number(int column) const;
  [[nodiscard]] std::string_view text(int column) const;
  [[nodiscard]] ByteView blob(int column) const;

 private:
  friend class Database;
  struct Finalizer {
    void operator()(sqlite3_stmt* statement) const noexcept;
  };
  explicit Statement(sqlite3_stmt* raw) : raw_(raw) {}
  Statement& bound(int code);

  std::unique_ptr<sqlite3_stmt, Finalizer> raw_;
  int bound_ = 0;
  int bind_code_ = 0;  // the first error of bind(); step() returns it
};

/// Rolled back by its destructor unless committed.
class Transaction {
 public:
  /// Takes the write lock at once, so that only this call waits for it.
  [[nodiscard]] static Result<Transaction> begin(const Database& database);
  [[nodiscard]] Result<void> commit();

 private:
  struct Rollback {
    using Raw = const Database*;
    static Raw null() noexcept { return nullptr; }
    static void close(Raw database) noexcept;
  };
  explicit Transaction(const Database& database) : database_(&database) {}
  UniqueHandle<Rollback> database_;
};

/// WAL is safe from 3.51.3 on: before, a checkpoint could lose a reset (the "WAL-reset"
/// bug of 3.7.0 to 3.51.2).
[[nodiscard]] bool wal_is_safe();

}  // namespace kiln::cache
