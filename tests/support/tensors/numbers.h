// The numbers in tensors: what kernels are given, and how far their results are off.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "tests/support/tensors/element_types.h"

namespace kiln::test {

/// Normally distributed.
template <typename T>
void fill_normally(std::span<T> tensor) {
  std::mt19937 random(static_cast<unsigned>(tensor.size()));
  std::normal_distribution<float> normal(0.0F, 3.0F);
  for (T& element : tensor) element = T::from(normal(random));
}

/// Elements of type T as doubles.
template <typename T>
std::vector<double> values(const T* row, std::int64_t cols) {
  std::vector<double> all;
  all.reserve(static_cast<std::size_t>(cols));
  for (std::int64_t j = 0; j < cols; ++j) {
    all.push_back(row[j].value());
  }
  return all;
}

/// How far `got` is from `want`, beyond what is `excused`, in ulp of T.
template <typename T>
double in_ulp(double got, double want, double excused) {
  const double error = std::fabs(got - want) - excused;
  return std::isnan(error) ? std::numeric_limits<double>::infinity()
                           : std::max(0.0, error) / ulp<T>(want);
}

}  // namespace kiln::test
