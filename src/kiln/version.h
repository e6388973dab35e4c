// The version this library was built as.

#pragma once

#include "kiln/export.h"

namespace kiln {

/// "major.minor.patch". Never null; lives for the whole program. Thread-safe.
[[nodiscard]] KILN_EXPORT const char* version();

/// 64 hex digits: a digest of the sources that this library was built from. A library
/// and a worker of different build ids do not work together. Never null. Thread-safe.
[[nodiscard]] KILN_EXPORT const char* build_id();

}  // namespace kiln
