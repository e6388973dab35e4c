// One row of a listing, and the query for a listing.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/metadata.h"
#include "cache/object.h"
#include "cache/signers.h"
#include "codec/digest.h"
#include "codec/fields.h"
#include "codec/trusted_keys.h"

namespace kiln::cache {

/// All that `ls` shows of an object without reading its payload.
struct Entry {
  Digest key;
  Kind kind = Kind::kCubin;
  std::string template_name;
  std::vector<Field> params;
  std::string arch;
  std::string toolchain;
  std::uint64_t size_bytes = 0;
  std::int64_t created_ns = 0;
  std::int64_t last_used_ns = 0;
  std::uint64_t compile_ms = 0;
  std::uint64_t registers = 0;
  std::uint64_t shared_bytes = 0;
  std::uint64_t spill_bytes = 0;
  std::string file;                      // of a source: the name of its program
  std::vector<EntryPoint> entry_points;  // of LTO-IR: what name expressions name
  std::vector<SignedBy> signed_by{};     // empty: built here, or taken unsigned

  friend bool operator==(const Entry&, const Entry&) = default;
};

enum class SortBy : std::uint8_t { kCreated, kUsed, kSize, kTemplate, kArch };

/// Filters combine with AND; an empty list filters nothing.
struct ListQuery {
  SortBy sort = SortBy::kCreated;        // newest or largest first; names from A to Z
  std::vector<std::string> archs{};      // any of these, as printed: "9.0a"
  std::vector<std::string> templates{};  // any of these; for a family all its kernels
  std::vector<Kind> kinds{};             // any of these
  std::vector<std::string> files{};  // any of these patterns, with or without folder
  std::vector<std::string> names{};  // any of these, see has_name()
  std::vector<KeyId> signers{};      // any of these
  /// Set: those that have signers, fewer than needed of whom are trusted by these keys
  /// now, and revoked objects.
  std::shared_ptr<const TrustedKeys> distrusted_by{};
  std::optional<std::int64_t> unused_since_ns{};  // last used before this
  std::optional<std::size_t> limit{};
};

[[nodiscard]] inline bool asks_for_signers(const ListQuery& query) {
  return !query.signers.empty() || query.distrusted_by != nullptr;
}

/// The row of an object; `last_used_ns` and the size are the file's. Of a source that
/// an older version stored, the name of the file is in the preimage alone.
[[nodiscard]] Entry entry_of(const Digest& key, Kind kind, Metadata&& metadata);

/// True if one of its entry points has the name: "phys::energy<float>" is also named by
/// "phys::energy" and by "energy". Of a template's kernel and
/// of files the name is theirs. `name` may be a pattern of a shell, "energy_*"; with
/// template arguments it is none, but for "energy<*>".
[[nodiscard]] bool has_name(const Entry& entry, const std::string& name);

void add_signers(const Signers::Known& known, Entry& entry);

/// Of an entry with signers: why they, or the entry, are not trusted by `keys`; "" if
/// they are.
[[nodiscard]] std::string why_distrusted(const Entry& entry, const TrustedKeys& keys);

/// Whether the filters of `query` let `entry` through.
[[nodiscard]] bool matches(const ListQuery& query, const Entry& entry);

/// Filters, sorts and truncates `entries` as `query` says, for a listing without an
/// index.
[[nodiscard]] std::vector<Entry> apply(const ListQuery& query,
                                       std::vector<Entry> entries);

}  // namespace kiln::cache
