// The name that a pack was given by whoever made or signed it. A signature covers it,
// so that nobody can give out one pack for another.

#pragma once

#include <string_view>

#include "kiln/result.h"

namespace kiln::cache {

/// "job" of "job", "job.kpack" and "job.kpack.zst": compression is no part of a name.
[[nodiscard]] std::string_view bare_pack_name(std::string_view name);

/// That a pack which calls itself `own` may be taken for `wanted`. Without a name of
/// its own, as of version 1, it may be any. Errors: kUntrusted.
[[nodiscard]] Result<void> check_pack_is(std::string_view own, std::string_view wanted);

}  // namespace kiln::cache
