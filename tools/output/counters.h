// What the counters of a cache count, in a few words. cache/FORMAT.md has the whole
// meanings.

#pragma once

#include <string>
#include <string_view>

#include "cache/cache.h"

namespace kiln::tools {

/// Of "hits", and of a name with parts, "corrupt.target"; "" for one of a later
/// version.
[[nodiscard]] std::string_view counter_meaning(std::string_view name);

/// 0 for what nobody has counted.
[[nodiscard]] std::uint64_t count_of(const cache::Stats& stats,
                                     const std::string& name);

/// "hits: 93 % of 1204 look-ups"; "" before the first.
[[nodiscard]] std::string hit_rate_text(const cache::Stats& stats);

}  // namespace kiln::tools
