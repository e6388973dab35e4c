// Tensors that lie in memory through strides: how far they reach, and whether their
// elements lie apart.

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

/// From the tensor's first element to its last, both included, in elements: 0 if it has
/// none. The stride of a dimension of size 1 does not count. Errors: a stride below 0;
/// 2^60 elements or more. `tensor` is what errors call it.
[[nodiscard]] Result<std::int64_t> span_of(std::string_view operation,
                                           std::string_view tensor,
                                           std::span<const Dimension> dimensions);

/// That no two elements of an output lie at one place. Orders of dimensions in which
/// each stride reaches over all smaller ones are taken, whatever their order; any other
/// is refused.
[[nodiscard]] Result<void> check_apart(std::string_view operation,
                                       std::string_view tensor,
                                       std::span<const Dimension> dimensions);

}  // namespace kiln::ops
