// What `stats` says, for a collector of metrics: OpenMetrics 1.0 as text. Only the
// types are used that the older text format of Prometheus has, too, which the textfile
// collector of its node exporter reads.

#pragma once

#include <string>

#include "cache/cache.h"

namespace kiln::tools {

/// No label holds a key or a path. A counter "a.b" of the cache is kiln_a_total with b
/// as a label.
/// `is_there`: there is a cache, and not an empty mount point, say.
[[nodiscard]] std::string openmetrics_text(const cache::Stats& stats, bool is_there);

}  // namespace kiln::tools
