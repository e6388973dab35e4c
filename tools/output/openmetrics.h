// What `stats` says, for a collector of metrics, as text: OpenMetrics 1.0, or the
// format 0.0.4 of Prometheus, which the textfile collector of its node exporter reads.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cache/cache.h"

namespace kiln::tools {

enum class MetricsFormat : std::uint8_t { kOpenMetrics, kPrometheus };

/// Each sample has the cache's `root` as its label `cache`, so that one node may export
/// several; no other label has a key or a path. A counter "a.b" of the cache is
/// kiln_a_total with b as a label. `is_there`: there is a cache, and not an empty mount
/// point, say.
[[nodiscard]] std::string metrics_text(const cache::Stats& stats, std::string_view root,
                                       bool is_there, MetricsFormat format);

}  // namespace kiln::tools
