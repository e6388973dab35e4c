// Whether a pack may be put into this cache: that it is not older than the last one of
// its name, or than what its user asks for.

#pragma once

#include <cstdint>
#include <string>

#include "cache/cache.h"
#include "cache/pack.h"
#include "cache/taken_packs.h"
#include "kiln/result.h"
#include "tools/option_set.h"

namespace kiln::tools {

struct TakingOptions {
  std::string min_serial;  // --min-serial
  bool older = false;      // --older
};

/// Declares both.
void add_taking_options(OptionSet& cli, TakingOptions& options);

/// How a pack is taken.
struct Taking {
  std::string name;  // that was asked for
  std::uint64_t min_serial = 0;
  bool older = false;
};

/// Errors: kInvalidArgument.
[[nodiscard]] Result<Taking> taking(const TakingOptions& options, std::string name);

/// What the root of `cache` remembers; nothing where it is off.
[[nodiscard]] cache::TakenPacks taken_packs(cache::Cache& cache);

/// Errors: kUntrusted, if a pack with `header` is older than Taking::min_serial, or
/// than the last of its name in `taken` without Taking::older.
[[nodiscard]] Result<void> check_order(const cache::PackHeader& header,
                                       const Taking& taking,
                                       const cache::TakenPacks& taken);

/// From now on it is the last of its name. A failure is said and nothing more.
void remember(const cache::PackHeader& header, cache::Cache& cache);

}  // namespace kiln::tools
