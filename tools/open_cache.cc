#include "tools/open_cache.h"

#include <fmt/format.h>

#include "build/build_options.h"
#include "util/try.h"

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
