// Prints cache entries, what their keys are made of, how two keys differ, and what was
// removed: for people and as JSON.

#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "cache/entry.h"
#include "cache/metadata.h"
#include "codec/digest.h"
#include "codec/fields.h"
#include "key/difference.h"
#include "tools/context.h"
#include "tools/output/terminal.h"

namespace kiln::tools {

/// The contract's entry: "key", "kind", "template", "params", "arch", ...
[[nodiscard]] nlohmann::ordered_json entry_json(const cache::Entry& entry);

/// `[{"name","lowered"}]`.
[[nodiscard]] nlohmann::ordered_json names_json(
    const std::vector<cache::EntryPoint>& names);

/// `sort`: the word of the column that stays in a narrow terminal, too: "size".
[[nodiscard]] std::vector<Column> entry_columns(std::string_view sort);
/// `now_ns` is the time that ages count from.
[[nodiscard]] std::vector<std::string> entry_row(const cache::Entry& entry,
                                                 std::int64_t now_ns);

/// [{"field","value"}]
[[nodiscard]] nlohmann::ordered_json preimage_json(const Fields& preimage);

/// "field: value" lines; a value of several lines is indented below its field.
[[nodiscard]] std::string format_preimage(const Fields& preimage);

/// [{"field","a","b"}]
[[nodiscard]] nlohmann::ordered_json differences_json(
    const std::vector<key::FieldDifference>& differences);

/// When a cache that is over its limit is trimmed; empty where it is not over it.
[[nodiscard]] std::string over_limit_text(const cache::Stats& stats);

/// {"producer","name","created","serial","toolchains"}: of a pack of version 1 without
/// a time, and "" and 0.
[[nodiscard]] nlohmann::ordered_json header_json(const cache::PackHeader& header);
/// "written as job.kpack at 2026-01-31T12:00:00Z, serial 17"; "" of version 1.
[[nodiscard]] std::string header_text(const cache::PackHeader& header);

/// "job.kpack: 400 objects, 12.1 MiB", and its header, or why it is not used.
[[nodiscard]] std::string seed_text(const cache::SeedState& seed);
/// {"path","kind","objects","bytes","header","error"}; those of a root are null.
[[nodiscard]] nlohmann::ordered_json seed_json(const cache::SeedState& seed);

struct Removal {
  std::vector<Digest> keys;
  std::uint64_t precompiled = 0;  // headers
  std::uint64_t freed_bytes = 0;
  bool dry_run = false;
};

void print_removal(const Context& context, const Removal& removal);

}  // namespace kiln::tools
