// Strided tensors: how much memory they span, and whether their elements overlap.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kiln/result.h"

namespace kiln::ops {

struct Dimension {
  std::string_view name;
  std::int64_t size;
  std::int64_t stride;  // in elements
};

/// The elements from the tensor's first to its last, both included; 0 if it has none.
/// The stride of a dimension of size 1 does not count. Errors: a stride below 0; 2^60
/// elements or more. Errors name the tensor by `tensor`.
[[nodiscard]] Result<std::int64_t> span_of(std::string_view tensor,
                                           std::span<const Dimension> dimensions);

/// Checks that no two elements of an output share memory. Accepts dimensions in any
/// order if each stride is at least the extent of all smaller strides; refuses all
/// others.
[[nodiscard]] Result<void> check_apart(std::string_view tensor,
                                       std::span<const Dimension> dimensions);

}  // namespace kiln::ops
