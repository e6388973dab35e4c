// The element types and sizes of tensors.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "kiln/export.h"

namespace kiln::ops {

/// Of a tensor's elements; an operation computes in float. What was not set is none.
enum class DType : std::uint8_t { kUnset, kF16, kBf16, kF32 };

/// "f16", "bf16", "f32", as templates spell it; "unset". Thread-safe.
[[nodiscard]] KILN_EXPORT std::string_view to_string(DType dtype);

/// Of one element; 0 for kUnset. Thread-safe.
[[nodiscard]] KILN_EXPORT std::size_t size_bytes(DType dtype);

/// A size that was not set is refused: it is neither 0 nor 1.
inline constexpr std::int64_t kUnsetSize = std::numeric_limits<std::int64_t>::min();

}  // namespace kiln::ops
