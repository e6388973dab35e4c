// Translates the settings into options of the cache and of the compile workers.

#pragma once

#include <filesystem>
#include <string_view>

#include "build/config.h"
#include "cache/cache.h"
#include "compile/pool/worker_pool.h"
#include "util/lazy_count.h"
#include "util/own_path.h"

namespace kiln {

/// Builds at a time: Config::jobs, else the usable cores; at each moment no more than
/// there is memory for.
[[nodiscard]] LazyCount build_jobs(const Config& config);

/// For a service, and for tools that use only the cache.
[[nodiscard]] cache::CacheOptions cache_options(const Config& config);

/// A folder of the cache root. `cache`, which must outlive it, counts each time that
/// the folder is refused as untrusted.
[[nodiscard]] OwnFolder counted(cache::Cache& cache,
                                const std::filesystem::path& folder);

/// A folder for what the processes of this machine tell each other, beside the locks;
/// empty where locks do not work or nothing can be written.
[[nodiscard]] OwnFolder node_folder(cache::Cache& cache, std::string_view name);

/// Where precompiled headers are; empty where there are none: by the settings, or
/// because the root cannot be written or is on a network file system.
[[nodiscard]] OwnFolder precompiled_folder(const Config& config, cache::Cache& cache);

/// `cache` must outlive the pool. Its slots bound how many workers of this machine
/// build at a time.
[[nodiscard]] compile::PoolOptions pool_options(const Config& config,
                                                const LazyCount& jobs,
                                                cache::Cache& cache);

}  // namespace kiln
