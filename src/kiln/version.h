// The version this library was built as.

#pragma once

#include "kiln/export.h"

namespace kiln {

/// "major.minor.patch". Never null; lives for the whole program. Thread-safe.
[[nodiscard]] KILN_EXPORT const char* version();

/// 64 hex digits that stand for the sources this program was built from. A worker and
/// a program whose build ids differ refuse to talk. Never null. Thread-safe.
[[nodiscard]] KILN_EXPORT const char* build_id();

}  // namespace kiln
