// One row of a listing, and the query for a listing.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/metadata.h"
#include "cache/object.h"
#include "codec/digest.h"

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

  friend bool operator==(const Entry&, const Entry&) = default;
};

enum class SortBy : std::uint8_t { kCreated, kUsed, kSize, kTemplate, kArch };

/// Filters combine with AND; an empty list filters nothing.
struct ListQuery {
  SortBy sort = SortBy::kCreated;        // newest or largest first; names from A to Z
  std::vector<std::string> archs{};      // any of these, as printed: "9.0a"
  std::vector<std::string> templates{};  // any of these; for a family all its kernels
  std::vector<Kind> kinds{};             // any of these
  std::optional<std::int64_t> unused_since_ns{};  // last used before this
  std::optional<std::size_t> limit{};
};

/// Filters, sorts and truncates `entries` as `query` says, for a listing without an
/// index.
[[nodiscard]] std::vector<Entry> apply(const ListQuery& query,
                                       std::vector<Entry> entries);

}  // namespace kiln::cache
