#include "cache/index_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "cache/object_header.h"
#include "codec/fields.h"
#include "util/try.h"
#include "util/words.h"

namespace kiln::cache::schema {
namespace {

constexpr std::int64_t kApplication = 0x4B494C4E;  // "KILN"
constexpr std::int64_t kVersion = 4;

// Triggers maintain the totals, so that the size limit is checked in constant time.
constexpr const char* kCreate = R"sql(
PRAGMA application_id = 1263094862;
PRAGMA user_version = 4;
CREATE TABLE entries(
  key BLOB PRIMARY KEY, folder INTEGER NOT NULL, kind INTEGER NOT NULL,
  template TEXT NOT NULL, params BLOB NOT NULL, arch TEXT NOT NULL,
  toolchain TEXT NOT NULL, size INTEGER NOT NULL, created INTEGER NOT NULL,
  used INTEGER NOT NULL, compile_ms INTEGER NOT NULL, registers INTEGER NOT NULL,
  shared_bytes INTEGER NOT NULL, spill_bytes INTEGER NOT NULL,
  file TEXT NOT NULL, entry_points BLOB NOT NULL);
CREATE INDEX by_folder ON entries(folder);
CREATE INDEX by_created ON entries(created DESC, key);
CREATE INDEX by_used ON entries(used DESC, key);
CREATE INDEX by_size ON entries(size DESC, key);
CREATE INDEX by_template ON entries(template, key);
CREATE INDEX by_arch ON entries(arch, key);
CREATE TABLE folders(number INTEGER PRIMARY KEY, mtime INTEGER NOT NULL);
CREATE TABLE totals(one INTEGER PRIMARY KEY CHECK(one = 1),
                    entries INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO totals VALUES(1, 0, 0);
CREATE TABLE boot(id TEXT NOT NULL);
CREATE TRIGGER entry_in AFTER INSERT ON entries BEGIN
  UPDATE totals SET entries = entries + 1, bytes = bytes + NEW.size; END;
CREATE TRIGGER entry_out AFTER DELETE ON entries BEGIN
  UPDATE totals SET entries = entries - 1, bytes = bytes - OLD.size; END;
CREATE TRIGGER entry_resized AFTER UPDATE OF size ON entries BEGIN
  UPDATE totals SET bytes = bytes - OLD.size + NEW.size; END;
)sql";

/// Pairs of texts: parameters, or names and lowered names.
template <typename Pair>
Bytes encode_pairs(const std::vector<Pair>& pairs) {
  Fields fields;
  for (const auto& [first, second] : pairs) fields.add(first, second);
  return fields.encode();
}

Result<Kind> kind_of(const Statement& row, int column) {
  const std::int64_t kind = row.number(column);
  if (kind < 1 || kind > static_cast<std::int64_t>(kKindCount))
    return fail(ErrorCode::kCorrupt, "index: there is no kind {}", kind);
  return static_cast<Kind>(kind);
}

Result<Totals> totals_of(const Statement& row, int column) {
  const std::int64_t entries = row.number(column);
  const std::int64_t bytes = row.number(column + 1);
  if (entries < 0 || bytes < 0)
    return fail(ErrorCode::kCorrupt, "index: its totals are wrong");
  return Totals{static_cast<std::uint64_t>(entries), static_cast<std::uint64_t>(bytes)};
}

Result<Entry> entry_of(const Statement& row) {
  // describe() rejects files of any other size.
  const std::int64_t size = row.number(6);
  if (size < static_cast<std::int64_t>(header::kBytes) ||
      size > static_cast<std::int64_t>(kMaxObjectBytes))
    return fail(ErrorCode::kCorrupt, "index: an object of {} bytes", size);
  const auto count = [&](int column) {
    return static_cast<std::uint64_t>(row.number(column));
  };
  Entry entry;
  auto& [key, kind, template_name, params, arch, toolchain, size_bytes, created_ns,
         last_used_ns, compile_ms, registers, shared_bytes, spill_bytes, file,
         entry_points, signed_by] = entry;  // which is in no index
  key = KILN_TRY(schema::key(row, 0));
  kind = KILN_TRY(kind_of(row, 1));
  template_name = row.text(2);
  params = KILN_TRY(Fields::decode(row.blob(3))).list();
  arch = row.text(4);
  toolchain = row.text(5);
  size_bytes = static_cast<std::uint64_t>(size);
  created_ns = row.number(7);
  last_used_ns = row.number(8);
  compile_ms = count(9);
  registers = count(10);
  shared_bytes = count(11);
  spill_bytes = count(12);
  file = row.text(13);
  for (Field& field : KILN_TRY(Fields::decode(row.blob(14))).list())
    entry_points.push_back({std::move(field.label), std::move(field.value)});
  return entry;
}

Result<bool> is_of_boot(const Database& database, std::string_view boot) {
  return KILN_TRY(database.prepare("SELECT 1 FROM boot WHERE id = ?"))
      .bind(boot)
      .step();
}

std::string_view order(SortBy sort) {
  return word_of(sort, {"created DESC, key", "used DESC, key", "size DESC, key",
                        "template, key", "arch, key"});
}

/// " AND column IN (?,?)" or "".
std::string among(std::string_view column, std::size_t values) {
  if (values == 0)
    return {};
  std::string marks = "?";
  for (std::size_t i = 1; i < values; ++i) marks += ",?";
  return fmt::format(" AND {} IN ({})", column, marks);
}

}  // namespace

Result<void> create(const Database& database, std::string_view boot) {
  // 64 MiB of page cache: keys are random, so each row touches random pages.
  KILN_TRY(
      database.execute("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;"
                       "PRAGMA cache_size = -65536"));
  KILN_TRY(database.execute(kCreate));
  return KILN_TRY(database.prepare("INSERT INTO boot VALUES(?)")).bind(boot).run();
}

Result<void> settle(const Database& database, std::string_view boot) {
  const std::int64_t application = KILN_TRY(database.number("PRAGMA application_id"));
  const std::int64_t version = KILN_TRY(database.number("PRAGMA user_version"));
  if (application != kApplication || version != kVersion) {
    return fail(ErrorCode::kCorrupt, "index: version {} of application {:x}", version,
                application);
  }
  if (!KILN_TRY(is_of_boot(database, boot)))
    return fail(ErrorCode::kCorrupt,
                "index: the machine was started again after it was written");
  KILN_TRY(database.execute("PRAGMA synchronous = OFF"));
  return database.execute(wal_is_safe() ? "PRAGMA journal_mode = WAL"
                                        : "PRAGMA journal_mode = TRUNCATE");
}

Result<void> insert(Statement& statement, const Entry& entry) {
  const auto& [key, kind, template_name, params, arch, toolchain, size_bytes,
               created_ns, last_used_ns, compile_ms, registers, shared_bytes,
               spill_bytes, file, entry_points, signed_by] = entry;
  const Bytes encoded = encode_pairs(params);
  const Bytes names = encode_pairs(entry_points);
  return statement
      .bind(key.bytes(), std::to_integer<std::int64_t>(key.bytes()[0]),
            static_cast<std::int64_t>(kind), std::string_view(template_name),
            ByteView(encoded), std::string_view(arch), std::string_view(toolchain),
            size_bytes, created_ns, last_used_ns, compile_ms, registers, shared_bytes,
            spill_bytes, std::string_view(file), ByteView(names))
      .run();
}

Result<Digest> key(const Statement& row, int column) {
  const ByteView bytes = row.blob(column);
  if (bytes.size() != Digest::kSize)
    return fail(ErrorCode::kCorrupt, "index: a key has not 32 bytes");
  return Digest(bytes.first<Digest::kSize>());
}

Result<std::vector<Entry>> list(const Database& database, const ListQuery& query) {
  std::string sql =
      "SELECT key, kind, template, params, arch, toolchain, size, created, used,"
      " compile_ms, registers, shared_bytes, spill_bytes, file, entry_points"
      " FROM entries WHERE 1";
  sql += among("arch", query.archs.size()) + among("template", query.templates.size()) +
         among("kind", query.kinds.size());
  if (query.unused_since_ns)
    sql += " AND used < ?";
  sql += fmt::format(" ORDER BY {}", order(query.sort));
  // Patterns are matched here.
  const bool is_filtered = !query.files.empty() || !query.names.empty();
  const std::size_t most =
      query.limit.value_or(std::numeric_limits<std::int64_t>::max());
  if (query.limit && !is_filtered)
    sql += " LIMIT ?";
  Statement select = KILN_TRY(database.prepare(sql));
  for (const std::string& arch : query.archs) select.bind(std::string_view(arch));
  for (const std::string& name : query.templates) select.bind(std::string_view(name));
  for (const Kind kind : query.kinds) select.bind(static_cast<std::int64_t>(kind));
  if (query.unused_since_ns)
    select.bind(*query.unused_since_ns);
  if (query.limit && !is_filtered) {
    constexpr auto kMost =
        static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
    select.bind(std::uint64_t{std::min(*query.limit, kMost)});
  }
  std::vector<Entry> entries;
  while (entries.size() < most && KILN_TRY(select.step())) {
    Entry entry = KILN_TRY(entry_of(select));
    if (!is_filtered || matches(query, entry))
      entries.push_back(std::move(entry));
  }
  return entries;
}

Result<Totals> totals(const Database& database) {
  Statement select = KILN_TRY(database.prepare("SELECT entries, bytes FROM totals"));
  if (!KILN_TRY(select.step()))
    return fail(ErrorCode::kCorrupt, "index: its totals are gone");
  return totals_of(select, 0);
}

Result<KindTotals> totals_by_kind(const Database& database) {
  Statement select = KILN_TRY(
      database.prepare("SELECT kind, COUNT(*), SUM(size) FROM entries GROUP BY kind"));
  KindTotals kinds;
  while (KILN_TRY(select.step()))
    kinds[KILN_TRY(kind_of(select, 0))] = KILN_TRY(totals_of(select, 1));
  return kinds;
}

}  // namespace kiln::cache::schema
