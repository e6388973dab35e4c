// What ls and stats say of objects of older versions of the format.

#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cache/cache.h"

namespace kiln::tools {

/// A line on stderr for each version that has left objects.
void print_older_formats(cache::Cache& cache);

/// Adds "older_formats": [{"version", "objects", "bytes", "last_used"}] where there are
/// any; else the document stays as it is.
void add_older_formats(cache::Cache& cache, nlohmann::ordered_json& document);

}  // namespace kiln::tools
