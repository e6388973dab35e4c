#include "tools/open_cache.h"

#include <fmt/format.h>

#include "build/build_options.h"
#include "tools/output/terminal.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {

Result<std::unique_ptr<cache::Cache>> open_cache(const Config& config) {
  cache::CacheOptions options = cache_options(config);
  options.make_root = false;
  auto cache = cache::Cache::open(std::move(options));
  if (cache->mode() == cache::Mode::kOff && !cache->is_absent()) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("no cache can be used: {}", cache->mode_reason()));
  }
  return cache;
}

PrecompiledStore precompiled_store(const Config& config, cache::Cache& cache) {
  return {kiln::counted(cache, cache.layout().precompiled()),
          precompiled_limit(config)};
}

std::string precompiled_text(const PrecompiledTotals& totals,
                             std::uint64_t limit_bytes) {
  return fmt::format(
      "{}, {} of {}",
      counted(totals.entries, "precompiled header", "precompiled headers"),
      format_size(totals.bytes), format_size(limit_bytes));
}

Result<std::vector<Digest>> resolve_keys(const cache::Cache& cache,
                                         const std::vector<std::string>& texts) {
  std::vector<Digest> keys;
  std::optional<Error> unknown;
  for (const std::string& text : texts) {
    auto key = cache.resolve(text);
    if (key)
      keys.push_back(*key);
    else if (key.error().code == ErrorCode::kNotFound)
      unknown = unknown.value_or(std::move(key).error());
    else
      return tl::unexpected(std::move(key).error());  // reported before an unknown key
  }
  if (unknown)
    return tl::unexpected(*std::move(unknown));
  return keys;
}

}  // namespace kiln::tools
