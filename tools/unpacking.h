// Puts the objects of a pack into the cache: `unpack`, and `pull --pack`.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cache/cache.h"
#include "cache/pack.h"
#include "kiln/result.h"
#include "tools/context.h"
#include "tools/option_set.h"

namespace kiln::tools {

/// Which pack may be taken: that it is not older than the last one of its name here, or
/// than its user says.
struct Taking {
  std::string name{};                 // that is asked for
  std::string min_serial_given;       // --min-serial
  bool older = false;                 // --older
  std::uint64_t min_serial = 0;       // of parse()
  const TrustedKeys* keys = nullptr;  // null: no object is revoked

  /// Declares both options.
  void add_options(OptionSet& cli);
  /// Errors: kInvalidArgument.
  [[nodiscard]] Result<void> parse();
  /// Errors: kUntrusted, if a pack with `header` is older than min_serial, or, without
  /// `older`, than the last in `cache`, which may be null.
  [[nodiscard]] Result<void> check(const cache::PackHeader& header,
                                   cache::Cache* cache) const;
  /// From now on it is the last of its name, if its signers are known, that is the name
  /// that was asked for, and no newer one was taken meanwhile without `older`. A
  /// failure is said, and nothing more.
  void remember(const cache::Pack& pack, cache::Cache& cache) const;
};

/// The cache, which is made if there is none. Errors: kUnavailable, if nothing can be
/// stored.
[[nodiscard]] Result<std::unique_ptr<cache::Cache>> open_to_unpack(
    const Context& context);

/// Stores every object of the pack, with progress on stderr, and records its toolchains
/// before those recorded earlier: later builds and look-ups here then use the NVRTC
/// that built the pack. Says what came of it; `file` is the pack's name. Returns the
/// exit status.
[[nodiscard]] int unpack_into_cache(Context& context, const cache::Pack& pack,
                                    const std::string& file, const Taking& taking,
                                    cache::Cache& cache);

}  // namespace kiln::tools
