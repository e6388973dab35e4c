// The tables of index.sqlite and how rows and values map onto each other. FORMAT.md,
// "Index". Knows nothing of files.

#pragma once

#include <string_view>
#include <vector>

#include "cache/entry.h"
#include "cache/index.h"
#include "cache/sqlite.h"
#include "codec/digest.h"
#include "kiln/result.h"

namespace kiln::cache::schema {

inline constexpr std::string_view kInsertEntry =
    "INSERT INTO entries(key, folder, kind, template, params, arch, toolchain, size,"
    " created, used, compile_ms, registers, shared_bytes, spill_bytes, file,"
    " entry_points) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
    " ON CONFLICT(key) DO UPDATE SET kind=excluded.kind, template=excluded.template,"
    " params=excluded.params, arch=excluded.arch, toolchain=excluded.toolchain,"
    " size=excluded.size, created=excluded.created, used=excluded.used,"
    " compile_ms=excluded.compile_ms, registers=excluded.registers,"
    " shared_bytes=excluded.shared_bytes, spill_bytes=excluded.spill_bytes,"
    " file=excluded.file, entry_points=excluded.entry_points";
inline constexpr std::string_view kMarkUsed = "UPDATE entries SET used=? WHERE key=?";
inline constexpr std::string_view kDeleteEntry = "DELETE FROM entries WHERE key=?";
inline constexpr std::string_view kSelectKeys =
    "SELECT key FROM entries WHERE folder=?";
inline constexpr std::string_view kSelectFolders = "SELECT number, mtime FROM folders";
inline constexpr std::string_view kNoteFolder =
    "INSERT INTO folders(number, mtime) VALUES(?,?)"
    " ON CONFLICT(number) DO UPDATE SET mtime=excluded.mtime";

/// Errors of all: as Database's. `boot` is the kernel's boot id.
[[nodiscard]] Result<void> create(const Database& database, std::string_view boot);
/// Sets the connection up. Errors: kCorrupt also for a database of another application,
/// another version or another boot: nothing is synced, so a power loss may have kept
/// only some of its pages, which SQLite does not detect.
[[nodiscard]] Result<void> settle(const Database& database, std::string_view boot);
[[nodiscard]] Result<void> insert(Statement& statement, const Entry& entry);
[[nodiscard]] Result<Digest> key(const Statement& row, int column);
[[nodiscard]] Result<std::vector<Entry>> list(const Database& database,
                                              const ListQuery& query);
[[nodiscard]] Result<Totals> totals(const Database& database);
[[nodiscard]] Result<KindTotals> totals_by_kind(const Database& database);

}  // namespace kiln::cache::schema
