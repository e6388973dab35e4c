// Opens the cache for verbs that build nothing.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "build/build_service.h"
#include "build/precompiled_store.h"
#include "cache/cache.h"
#include "tools/context.h"

namespace kiln::tools {

/// Errors: kUnavailable where there is no usable cache at all, with the reason; a
/// folder that is empty or does not exist yet is an empty cache, and stays as it is.
[[nodiscard]] Result<std::unique_ptr<cache::Cache>> open_cache(const Config& config);

/// The same for verbs whose answer about an empty mount point would look well. Says if
/// the default place has no cache. Errors: also kUnavailable where a folder is named
/// that does not exist or is no cache.
[[nodiscard]] Result<std::unique_ptr<cache::Cache>> open_named_cache(
    const Context& context);

/// As open_cache(), of a service that finds keys and builds nothing. Errors: also those
/// of BuildService::open.
[[nodiscard]] Result<std::unique_ptr<BuildService>> open_to_look(const Context& context,
                                                                 const Config& config);

/// Of a cache that is absent: whether a run could make its root. Tries it with an empty
/// folder of another name where the first missing one belongs, and removes that.
/// Errors: kIo.
[[nodiscard]] Result<void> check_can_be_made(const cache::Cache& cache);

/// `error`, and why the cache is off, if it is: what fails may be the consequence.
[[nodiscard]] Error with_why_off(Error error, const cache::Cache& cache);

/// The precompiled headers beside its objects.
[[nodiscard]] PrecompiledStore precompiled_store(const Config& config,
                                                 cache::Cache& cache);

/// "3 headers, 510 MiB of 2 GiB".
[[nodiscard]] std::string precompiled_text(const PrecompiledTotals& totals,
                                           std::uint64_t limit_bytes);

/// The keys that `texts` mean: 64 digits, or a unique prefix of 6 or more.
/// Errors: kInvalidArgument (too short, ambiguous), kNotFound (unknown).
[[nodiscard]] Result<std::vector<Digest>> resolve_keys(
    const cache::Cache& cache, const std::vector<std::string>& texts);

}  // namespace kiln::tools
