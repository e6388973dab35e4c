// A seed as KILN_SEED names it: a path, and options behind it.

#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "kiln/result.h"

namespace kiln::cache {

/// Thread safety: a value.
struct SeedPlace {
  std::filesystem::path path{};
  bool is_signed = false;        // a pack by a trusted key, or not used
  std::uint64_t min_serial = 0;  // an older pack is not used
  bool refuses_older = false;    // than the last that the cache has taken
  friend bool operator==(const SeedPlace&, const SeedPlace&) = default;
};

/// "/srv/job.kpack;signed=1;min_serial=7;older=refuse". Errors: kInvalidArgument: an
/// unknown or repeated option, with the nearest match; a value that is none.
[[nodiscard]] Result<SeedPlace> parse_seed(const std::filesystem::path& text);

/// That all of them could be used. Errors: those of parse_seed(); kInvalidArgument, if
/// one must be signed and no key is trusted.
[[nodiscard]] Result<void> check_seeds(std::span<const std::filesystem::path> texts,
                                       bool has_keys);

}  // namespace kiln::cache
