// One cache entry as JSON and as a table row: what ls, show and why print.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cache/entry.h"
#include "tools/output/terminal.h"

namespace kiln::tools {

/// The contract's entry: "key", "kind", "template", "params", "arch", ...
[[nodiscard]] nlohmann::ordered_json entry_json(const cache::Entry& entry);

/// "scaled_softmax_fwd:dtype=bf16", or "(source)".
[[nodiscard]] std::string entry_label(const cache::Entry& entry);

[[nodiscard]] std::vector<Column> entry_columns();
/// `now_ns` is the time that ages count from.
[[nodiscard]] std::vector<std::string> entry_row(const cache::Entry& entry,
                                                 std::int64_t now_ns);

/// Of nanoseconds since 1970: "2026-01-31T12:00:00Z".
[[nodiscard]] std::string time_text(std::int64_t ns);

}  // namespace kiln::tools
