// What the cache and the compile workers are opened with: the settings, translated.

#pragma once

#include <filesystem>

#include "build/config.h"
#include "cache/cache.h"
#include "compile/pool/worker_pool.h"
#include "util/lazy_count.h"
#include "util/own_path.h"

namespace kiln {

/// Builds at a time: Config::jobs, else the usable cores.
[[nodiscard]] LazyCount build_jobs(const Config& config);

/// For a service, and for tools that need no more than the cache.
[[nodiscard]] cache::CacheOptions cache_options(const Config& config);

/// A folder of the root that counts in `cache`, which must outlive it, what is refused
/// there.
[[nodiscard]] OwnFolder counted(cache::Cache& cache, std::filesystem::path folder);

/// `cache` bounds how many workers of this machine build at once, and must outlive the
/// pool.
[[nodiscard]] compile::PoolOptions pool_options(const Config& config,
                                                const LazyCount& jobs,
                                                cache::Cache& cache);

}  // namespace kiln
