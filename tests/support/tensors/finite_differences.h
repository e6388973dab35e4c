// A gradient out of the definition alone: what references of gradients are tried with.

#pragma once

#include <vector>

namespace kiln::test {

/// How `loss` changes with each element of x, by central differences of `step`.
template <typename Loss>
std::vector<double> finite_differences(std::vector<double> x, double step,
                                       const Loss& loss) {
  std::vector<double> dx;
  dx.reserve(x.size());
  for (double& value : x) {
    const double kept = value;
    value = kept + step;
    const double above = loss(x);
    value = kept - step;
    dx.push_back((above - loss(x)) / (2 * step));
    value = kept;
  }
  return dx;
}

}  // namespace kiln::test
