// The rotary embedding's definition in double.

#pragma once

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "tests/support/tensors/finite_differences.h"

namespace kiln::rope_test {

/// A row of the table, a column an element.
struct Turns {
  std::vector<double> cos;
  std::vector<double> sin;
};

struct Rotated {
  std::vector<double> head;
  std::vector<double> magnitude;  // of the two terms of each element
};

/// The other element of d's pair, of r that are rotated, and whether d is the first.
struct Partner {
  std::size_t at;
  bool d_is_first;
};
inline Partner partner_of(std::size_t d, std::size_t r, bool interleaved) {
  if (interleaved)
    return {d ^ 1U, d % 2 == 0};
  return {d < r / 2 ? d + r / 2 : d - r / 2, d < r / 2};
}

/// One head, or, backward, the gradient of one.
inline Rotated rotate(const std::vector<double>& x, const Turns& turns,
                      bool interleaved, bool backward) {
  Rotated out{x, std::vector<double>(x.size(), 0.0)};
  const std::size_t r = turns.cos.size();
  for (std::size_t d = 0; d < r; ++d) {
    const auto [other, d_is_first] = partner_of(d, r, interleaved);
    // d's row of the matrix, or its column.
    const double sine = backward ? -turns.sin[other] : turns.sin[d];
    const double own = x[d] * turns.cos[d];
    const double others = (d_is_first ? -1 : 1) * x[other] * sine;
    out.head[d] = own + others;
    out.magnitude[d] = std::fabs(own) + std::fabs(others);
  }
  return out;
}

/// The gradient of sum(g * rotate(x)) by x, out of the definition alone: by central
/// differences. Good to about 1e-9 of the largest |g|.
inline std::vector<double> finite_differences(std::vector<double> x,
                                              const std::vector<double>& g,
                                              const Turns& turns, bool interleaved) {
  return test::finite_differences(std::move(x), 1e-4, [&](const auto& at) {
    const std::vector<double> y = rotate(at, turns, interleaved, false).head;
    double sum = 0;
    for (std::size_t d = 0; d < y.size(); ++d) sum += g[d] * y[d];
    return sum;
  });
}

}  // namespace kiln::rope_test
