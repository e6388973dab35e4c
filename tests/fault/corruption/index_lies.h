// An index that lies: changes to its rows and to its file that no Kiln makes.

#pragma once

#include <sqlite3.h>

#include <array>
#include <filesystem>
#include <string>

namespace kiln::test {

/// Runs `sql` on an SQLite file; the error, or "".
inline std::string change_rows(const std::filesystem::path& index, const char* sql) {
  sqlite3* database = nullptr;
  std::string error;
  if (sqlite3_open(index.c_str(), &database) != SQLITE_OK ||
      sqlite3_exec(database, sql, nullptr, nullptr, nullptr) != SQLITE_OK)
    error = sqlite3_errmsg(database);
  sqlite3_close(database);
  return error;
}

/// Each leaves a database of the right version whose rows say what is not so.
inline constexpr std::array kLies{
    "UPDATE entries SET size = 1",
    "UPDATE entries SET size = 0",
    "UPDATE entries SET size = -1",
    "UPDATE entries SET size = 9223372036854775807",
    "UPDATE entries SET size = 'many'",
    "UPDATE entries SET size = 1e300",
    "UPDATE entries SET used = 0",
    "UPDATE entries SET used = -9223372036854775808",
    "UPDATE entries SET used = 9223372036854775807",
    "UPDATE entries SET created = -9223372036854775808",
    "UPDATE entries SET created = 9223372036854775807",
    "UPDATE entries SET compile_ms = -1, registers = -1, shared_bytes = -1",
    "UPDATE entries SET compile_ms = 9223372036854775807",
    "UPDATE entries SET key = randomblob(32)",
    "UPDATE entries SET key = randomblob(31)",
    "UPDATE entries SET key = zeroblob(32) WHERE key = (SELECT min(key) FROM entries)",
    "UPDATE entries SET folder = 255 - folder",
    "UPDATE entries SET folder = -1",
    "UPDATE entries SET kind = 3 - kind",
    "UPDATE entries SET kind = 9223372036854775807",
    "UPDATE entries SET template = 'a' || char(0) || 'b' || char(10) || char(27)",
    "UPDATE entries SET template = CAST(x'FFFE00' AS TEXT), arch = x'FF00'",
    "UPDATE entries SET arch = '../../../etc', toolchain = '%s%n{}'",
    "UPDATE entries SET params = x'FFFFFFFFFFFFFFFFFFFFFFFF'",
    "UPDATE entries SET params = x'000000000000000000000000'",
    "UPDATE entries SET template = CAST(zeroblob(1000000) AS TEXT)",
    "DELETE FROM entries",
    "DELETE FROM entries; DELETE FROM folders",
    "UPDATE folders SET mtime = 9223372036854775807",
    "UPDATE folders SET mtime = -9223372036854775808",
    "UPDATE folders SET number = number + 1000",
    "UPDATE totals SET bytes = 9223372036854775807, entries = 9223372036854775807",
    "UPDATE totals SET bytes = -1",
    "UPDATE totals SET bytes = 0, entries = 0",
    "DELETE FROM totals",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)"
    " INSERT INTO entries SELECT randomblob(32), i % 256, 1, 't', x'', '9.0', 'n',"
    " 500000000, i, i, 1, 1, 1, 1 FROM n",
};

}  // namespace kiln::test
