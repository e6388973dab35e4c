// The element type of tensors, and the mark of a size that is not set.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "kiln/export.h"

namespace kiln::ops {

/// The element type of a tensor. Operations compute in float; attention multiplies
/// 16-bit elements on tensor cores and sums in float.
enum class DType : std::uint8_t { kUnset, kF16, kBf16, kF32 };

/// "f16", "bf16", "f32", as templates spell it; "unset". Thread-safe.
[[nodiscard]] KILN_EXPORT std::string_view to_string(DType dtype);

/// The size of one element; 0 for kUnset. Thread-safe.
[[nodiscard]] KILN_EXPORT std::size_t size_bytes(DType dtype);

/// The default of a size that the caller must set. Operations refuse it, so that a
/// forgotten size is an error.
inline constexpr std::int64_t kUnsetSize = std::numeric_limits<std::int64_t>::min();

}  // namespace kiln::ops
