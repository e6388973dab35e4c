// Attention's definition in double, and the same with the roundings of a plain
// implementation in 16 bits: what kernels are measured by.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace kiln::attention_test {

/// One head of one sequence: rows of doubles.
using Matrix = std::vector<std::vector<double>>;

inline Matrix zeros(std::size_t rows, std::size_t cols) {
  return Matrix(rows, std::vector<double>(cols, 0.0));
}

/// What is computed beside q, k, v and the gradient of o.
struct Terms {
  double scale = 1;
  /// Of query i and key j: seen at all; what is added to the score; what the
  /// probability is multiplied by.
  std::function<bool(std::int64_t, std::int64_t)> sees;
  std::function<double(std::int64_t, std::int64_t)> bias;
  std::function<double(std::int64_t, std::int64_t)> dropout;
};

/// A rounding to the tensors' type; the identity for the exact result.
using Round = std::function<double(double)>;

struct Forward {
  Matrix o;
  std::vector<double> lse;
  Matrix p;  // before dropout
};

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

inline Forward forward(const Matrix& q, const Matrix& k, const Matrix& v,
                       std::size_t dv, const Terms& terms, const Round& round) {
  Forward out{zeros(q.size(), dv), {}, zeros(q.size(), k.size())};
  for (std::size_t i = 0; i < q.size(); ++i) {
    std::vector<double> s(k.size(), -std::numeric_limits<double>::infinity());
    double top = -std::numeric_limits<double>::infinity();
    for (std::size_t j = 0; j < k.size(); ++j) {
      const auto row = static_cast<std::int64_t>(i);
      const auto col = static_cast<std::int64_t>(j);
      if (terms.sees(row, col))
        s[j] = terms.scale * dot(q[i], k[j]) + terms.bias(row, col);
      top = std::max(top, s[j]);
    }
    double sum = 0;
    if (top != -std::numeric_limits<double>::infinity()) {
      for (const double each : s) sum += std::exp(each - top);
    }
    out.lse.push_back(top + std::log(sum));
    if (sum == 0) {
      out.lse.back() = -std::numeric_limits<double>::infinity();
      continue;
    }
    for (std::size_t j = 0; j < k.size(); ++j) {
      out.p[i][j] = std::exp(s[j] - top) / sum;
      const double kept =
          round(out.p[i][j] * terms.dropout(static_cast<std::int64_t>(i),
                                            static_cast<std::int64_t>(j)));
      for (std::size_t d = 0; d < dv; ++d) out.o[i][d] += kept * v[j][d];
    }
    for (double& each : out.o[i]) each = round(each);
  }
  return out;
}

/// Of both: that of a sequence without queries, or without keys, has no row to tell.
inline std::size_t columns(const Matrix& a, const Matrix& b) {
  const auto of = [](const Matrix& rows) {
    return rows.empty() ? std::size_t{0} : rows[0].size();
  };
  return std::max(of(a), of(b));
}

struct Backward {
  Matrix dq;
  Matrix dk;
  Matrix dv;
  Matrix ds;  // the gradient of a bias
};

/// `exact` is the forward pass with the same rounding.
inline Backward backward(const Matrix& q, const Matrix& k, const Matrix& v,
                         const Matrix& grad, const Forward& exact, const Terms& terms,
                         const Round& round) {
  const std::size_t dqk = columns(q, k);
  const std::size_t dv = columns(grad, v);
  Backward out{zeros(q.size(), dqk), zeros(k.size(), dqk), zeros(k.size(), dv),
               zeros(q.size(), k.size())};
  for (std::size_t i = 0; i < q.size(); ++i) {
    const double delta = dot(grad[i], exact.o[i]);
    for (std::size_t j = 0; j < k.size(); ++j) {
      const double p = round(exact.p[i][j]);
      if (p == 0)
        continue;
      const double kept =
          terms.dropout(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j));
      const double ds = round(p * (kept * dot(grad[i], v[j]) - delta));
      out.ds[i][j] = ds;
      for (std::size_t d = 0; d < dqk; ++d) {
        out.dq[i][d] += terms.scale * ds * k[j][d];
        out.dk[j][d] += terms.scale * ds * q[i][d];
      }
      for (std::size_t d = 0; d < dv; ++d) out.dv[j][d] += round(p * kept) * grad[i][d];
    }
    for (double& each : out.dq[i]) each = round(each);
  }
  return out;
}

/// How far the rounding of o moves the gradients by way of delta = rowsum(do * o),
/// where that is all that is left of them: a query that sees one key has none. For an
/// error of 1 in each element of o, relative to it and of any sign; squared, so that
/// those of many queries add up. dv does not depend on delta.
inline Backward moved_by_delta(const Matrix& q, const Matrix& k, const Matrix& grad,
                               const Forward& exact, const Terms& terms) {
  const std::size_t dqk = columns(q, k);
  Backward out{
      zeros(q.size(), dqk), zeros(k.size(), dqk), {}, zeros(q.size(), k.size())};
  const auto square = [](double x) { return x * x; };
  for (std::size_t i = 0; i < q.size(); ++i) {
    double delta = 0;
    for (std::size_t d = 0; d < grad[i].size(); ++d)
      delta += square(grad[i][d] * exact.o[i][d]);
    std::vector<double> mean(dqk, 0.0);  // of the keys
    for (std::size_t j = 0; j < k.size(); ++j) {
      const double p = exact.p[i][j];
      if (p == 0)
        continue;
      out.ds[i][j] = square(p) * delta;
      for (std::size_t d = 0; d < dqk; ++d) {
        mean[d] += p * k[j][d];
        out.dk[j][d] += square(terms.scale * p * q[i][d]) * delta;
      }
    }
    for (std::size_t d = 0; d < dqk; ++d)
      out.dq[i][d] = square(terms.scale * mean[d]) * delta;
  }
  return out;
}

}  // namespace kiln::attention_test
