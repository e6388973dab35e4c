// An index that lies: changes to its rows and to its file that no Kiln makes.

#pragma once

#include <sqlite3.h>

#include <array>
#include <cstdint>
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

/// What a listing makes of a lie.
enum class Listing : std::uint8_t {
  kTrue,     // it cannot be, or does not show: the list is as ever
  kRepeats,  // it could be so: it is in the list until the folder is read again
};

struct Lie {
  const char* sql;
  Listing listing;
};

constexpr Lie hidden(const char* sql) {
  return {sql, Listing::kTrue};
}
constexpr Lie repeated(const char* sql) {
  return {sql, Listing::kRepeats};
}

/// Each leaves a database of the right version whose rows say what is not so.
inline constexpr std::array kLies{
    hidden("UPDATE entries SET size = 1"),
    hidden("UPDATE entries SET size = 0"),
    hidden("UPDATE entries SET size = -1"),
    hidden("UPDATE entries SET size = 9223372036854775807"),
    hidden("UPDATE entries SET size = 'many'"),
    hidden("UPDATE entries SET size = 1e300"),
    repeated("UPDATE entries SET used = 0"),
    repeated("UPDATE entries SET used = -9223372036854775808"),
    repeated("UPDATE entries SET used = 9223372036854775807"),
    repeated("UPDATE entries SET created = -9223372036854775808"),
    repeated("UPDATE entries SET created = 9223372036854775807"),
    repeated("UPDATE entries SET compile_ms = -1, registers = -1, shared_bytes = -1"),
    repeated("UPDATE entries SET compile_ms = 9223372036854775807"),
    repeated("UPDATE entries SET key = randomblob(32)"),
    hidden("UPDATE entries SET key = randomblob(31)"),
    repeated("UPDATE entries SET key = zeroblob(32) WHERE key = (SELECT min(key) FROM "
             "entries)"),
    hidden("UPDATE entries SET folder = 255 - folder"),
    hidden("UPDATE entries SET folder = -1"),
    repeated("UPDATE entries SET kind = 3 - kind"),
    hidden("UPDATE entries SET kind = 9223372036854775807"),
    repeated(
        "UPDATE entries SET template = 'a' || char(0) || 'b' || char(10) || char(27)"),
    repeated("UPDATE entries SET template = CAST(x'FFFE00' AS TEXT), arch = x'FF00'"),
    repeated("UPDATE entries SET arch = '../../../etc', toolchain = '%s%n{}'"),
    hidden("UPDATE entries SET params = x'FFFFFFFFFFFFFFFFFFFFFFFF'"),
    repeated("UPDATE entries SET params = x'000000000000000000000000'"),
    repeated("UPDATE entries SET template = CAST(zeroblob(1000000) AS TEXT)"),
    repeated("UPDATE entries SET file = 'a' || char(0) || char(27) || '../../etc'"),
    hidden("UPDATE entries SET entry_points = x'FFFFFFFFFFFFFFFFFFFFFFFF'"),
    repeated("UPDATE entries SET entry_points = x'000000000000000000000000'"),
    repeated("DELETE FROM entries"),
    hidden("DELETE FROM entries; DELETE FROM folders"),
    hidden("UPDATE folders SET mtime = 9223372036854775807"),
    hidden("UPDATE folders SET mtime = -9223372036854775808"),
    hidden("UPDATE folders SET number = number + 1000"),
    hidden(
        "UPDATE totals SET bytes = 9223372036854775807, entries = 9223372036854775807"),
    hidden("UPDATE totals SET bytes = -1"),
    hidden("UPDATE totals SET bytes = 0, entries = 0"),
    hidden("DELETE FROM totals"),
    repeated(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)"
        " INSERT INTO entries SELECT randomblob(32), i % 256, 1, 't', x'', '9.0', 'n',"
        " 500000000, i, i, 1, 1, 1, 1, '', x'' FROM n"),
};

}  // namespace kiln::test
