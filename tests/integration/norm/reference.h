// LayerNorm and RMSNorm in double, by their definitions, with what a float may make of
// each number. A test gives both sides the same rounded inputs.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "tests/support/tensors/finite_differences.h"

namespace kiln::norm_test {

using Row = std::vector<double>;

/// Half the distance of a float to the next one, relative: of one rounding.
inline constexpr double kRounding = 0x1p-24;

/// Roundings that a term of a sum of `n` goes through: those of one thread, which has
/// 64 of them at most, one after the other, and those of a tree.
inline double roundings_of_sum(std::size_t n) {
  const double in_a_thread = std::min(64.0, std::ceil(static_cast<double>(n) / 8));
  return in_a_thread + std::ceil(std::log2(static_cast<double>(n) + 1)) + 2;
}

struct Normal {
  double mean = 0;  // 0 for an RMSNorm
  double rstd = 0;
  Row xh;                // the row normalized
  double deviation = 0;  // mean of |x - mean|: what the mean's error is relative to
};

inline Normal normalize(const Row& x, bool layer, double eps) {
  const auto n = static_cast<double>(x.size());
  Normal normal;
  if (layer) {
    for (const double value : x) normal.mean += value / n;
  }
  double squares = 0;
  for (const double value : x) {
    const double difference = value - normal.mean;
    squares += difference * difference;
    normal.deviation += std::fabs(difference) / n;
  }
  normal.rstd = 1 / std::sqrt(squares / n + eps);
  for (const double value : x) normal.xh.push_back((value - normal.mean) * normal.rstd);
  return normal;
}

/// What float arithmetic may put between xh[j] and what a kernel has for it.
inline double error_of_xh(const Normal& normal, std::size_t j, bool layer) {
  const double sum = roundings_of_sum(normal.xh.size());
  const double of_mean = layer ? sum * normal.deviation * normal.rstd : 0;
  return kRounding * ((sum / 2 + 5) * std::fabs(normal.xh[j]) + of_mean);
}

/// xh out of the output y, as kiln/ops/norm.h defines it; `w` is what y was scaled by.
inline double undone(double y, double w, double bias, std::size_t cols) {
  const double largest = std::sqrt(static_cast<double>(cols));
  return std::fabs(w) < 0x1p-125 ? 0 : std::clamp((y - bias) / w, -largest, largest);
}

struct Gradients {
  Row dx;
  Row dx_error;  // what float arithmetic may do to it
};

/// Of one row, for given mean and rstd; `g` is dy * weight. A kernel's xh is off by so
/// many roundings.
inline Gradients gradients(const Row& g, const Row& xh, double rstd, bool layer,
                           double roundings_of_xh) {
  const auto n = static_cast<double>(g.size());
  double crossed = 0;
  double plain = 0;
  double all_crossed = 0;
  double all_plain = 0;
  for (std::size_t j = 0; j < g.size(); ++j) {
    crossed += g[j] * xh[j] / n;
    plain += layer ? g[j] / n : 0;
    all_crossed += std::fabs(g[j] * xh[j]) / n;
    all_plain += layer ? std::fabs(g[j]) / n : 0;
  }
  const double sum = roundings_of_sum(g.size()) + 2 + 2 * roundings_of_xh;
  Gradients of;
  for (std::size_t j = 0; j < g.size(); ++j) {
    of.dx.push_back(rstd * (g[j] - plain - xh[j] * crossed));
    of.dx_error.push_back(
        kRounding * rstd *
        (6 * std::fabs(g[j]) + sum * all_plain + std::fabs(xh[j]) * sum * all_crossed));
  }
  return of;
}

/// The same out of the definition alone: how sum(dy * y) changes with each x. Good to
/// about 1e-8 of the largest term.
inline Row finite_differences(Row x, const Row& g, bool layer, double eps) {
  return test::finite_differences(std::move(x), 1e-5, [&](const Row& at) {
    const Normal normal = normalize(at, layer, eps);
    double sum = 0;
    for (std::size_t j = 0; j < at.size(); ++j) sum += g[j] * normal.xh[j];
    return sum;
  });
}

}  // namespace kiln::norm_test
