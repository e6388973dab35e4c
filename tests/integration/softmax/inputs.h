// What the softmax kernels are given: the same numbers for the same sizes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

#include "tests/integration/softmax/reference.h"
#include "tests/integration/softmax/shape.h"
#include "tests/support/tensors/guarded_tensor.h"
#include "tests/support/tensors/numbers.h"

namespace kiln::softmax_test {

using test::fill_normally;
using test::values;

/// Of a mask.
using Byte = test::Whole<std::uint8_t, 1>;

/// A quarter of the columns masked; every fifth row of a mask wholly.
inline void fill_mask(std::span<std::uint8_t> mask, I64 cols) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same every time
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const bool whole = static_cast<I64>(i) / cols % 5 == 4;
    mask[i] = whole || random() % 4 == 0 ? 1 : 0;
  }
}

/// y as a forward kernel might have written it, out of `x`; both have the size of
/// `shape`. `visible(row, j)` says what is not masked.
template <typename T, typename Visible>
void fill_y(T* y, const T* x, const Shape& shape, Visible visible) {
  for (I64 row = 0; row < shape.rows(); ++row) {
    const I64 at = row * shape.cols;
    const auto row_of_y = softmax(values(x + at, shape.cols), 0.5F,
                                  [&](I64 j) { return visible(row, j); });
    for (I64 j = 0; j < shape.cols; ++j)
      y[at + j] = T::from(static_cast<float>(row_of_y[static_cast<std::size_t>(j)]));
  }
}

}  // namespace kiln::softmax_test
