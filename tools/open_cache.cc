#include "tools/open_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "build/build_options.h"
#include "tools/output/terminal.h"
#include "util/posix_error.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

Result<void> check_usable(const cache::Cache& cache) {
  if (cache.mode() != cache::Mode::kOff || cache.is_absent())
    return {};
  return fail(ErrorCode::kUnavailable, "no cache can be used: {}", cache.mode_reason());
}

}  // namespace

Result<std::unique_ptr<cache::Cache>> open_cache(const Config& config) {
  cache::CacheOptions options = cache_options(config);
  options.make_root = false;
  options.warns_when_off = false;
  auto cache = cache::Cache::open(std::move(options));
  KILN_TRY(check_usable(*cache));
  return cache;
}

Result<std::unique_ptr<cache::Cache>> open_named_cache(const Context& context) {
  auto cache = KILN_TRY(open_cache(context.config));
  if (!cache->is_absent())
    return cache;
  std::error_code unknown;
  const std::filesystem::path& root = cache->layout().root();
  if (!context.config.cache_dir_by.name.empty() &&
      !std::filesystem::exists(root / "objects", unknown))
    return fail(ErrorCode::kUnavailable, "{} is {}: {}",
                context.config.cache_dir_by.name, root.native(),
                std::filesystem::exists(root, unknown)
                    ? "that is no cache, since it has no folder 'objects': is its file "
                      "system mounted?"
                    : "there is no such folder");
  print_note(fmt::format("{}: there is no cache yet; the first build makes it\n",
                         root.native()));
  return cache;
}

Result<std::unique_ptr<BuildService>> open_to_look(const Context& context,
                                                   const Config& config) {
  auto service =
      KILN_TRY(from_input(BuildService::open(config, {.stop = context.stop->token(),
                                                      .make_root = false,
                                                      .asks_remotes = false,
                                                      .warns_when_off = false})));
  KILN_TRY(check_usable(service->cache()));
  return service;
}

Result<void> check_can_be_made(const cache::Cache& cache) {
  std::error_code error;
  std::filesystem::path place = cache.layout().objects();
  while (!std::filesystem::exists(place, error) && place.has_relative_path())
    place = place.parent_path();
  std::string probe = place / ".kiln-XXXXXX";
  if (::mkdtemp(probe.data()) == nullptr)
    return posix_error("mkdir in", place, errno);
  ::rmdir(probe.c_str());
  return {};
}

Error with_why_off(Error error, const cache::Cache& cache) {
  if (const auto usable = check_usable(cache); !usable)
    error.message += "; and " + usable.error().message;
  return error;
}

PrecompiledStore precompiled_store(const Config& config, cache::Cache& cache) {
  return {kiln::counted(cache, cache.layout().precompiled()),
          precompiled_limit(config)};
}

std::string precompiled_text(const PrecompiledTotals& totals,
                             std::uint64_t limit_bytes) {
  return fmt::format("{}, {} of {}", counted(totals.entries, "header", "headers"),
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
