// Puts the objects of a pack into the cache: `unpack`, and `pull --pack`.

#pragma once

#include <string>

#include "cache/cache.h"
#include "cache/pack.h"
#include "kiln/result.h"
#include "tools/context.h"
#include "tools/taking.h"

namespace kiln::tools {

/// Stores every object of the pack, with progress on stderr, and records its toolchain:
/// later builds and look-ups here then use the NVRTC that built the pack. Says what
/// came of it; `file` is the pack's name. Returns the exit status. Errors:
/// kUnavailable, if nothing can be stored.
[[nodiscard]] Result<int> unpack_into_cache(Context& context, const cache::Pack& pack,
                                            const std::string& file,
                                            const Taking& taking);

}  // namespace kiln::tools
