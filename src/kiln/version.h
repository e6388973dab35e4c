// The version and the build id of this library.

#pragma once

#include "kiln/export.h"

namespace kiln {

/// "major.minor.patch". Never null; lives for the whole program. Thread-safe.
[[nodiscard]] KILN_EXPORT const char* version();

/// 64 hex digits: a digest of the sources that this library was built from. The library
/// refuses a worker with another build id. Never null. Thread-safe.
[[nodiscard]] KILN_EXPORT const char* build_id();

}  // namespace kiln
