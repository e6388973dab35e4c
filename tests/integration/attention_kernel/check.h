// How far an attention kernel's results are off, and how far they may be: forward at
// most twice, backward three times as far from the exact result as a plain
// implementation in the same type is; and in any case not more than rounding explains,
// that of o among it, from which the backward pass takes delta (moved_by_delta()).

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/attention_kernel/call.h"

namespace kiln::attention_test {

/// The largest difference of a tensor's elements to the exact ones: of the kernel, and
/// of the plain implementation; the largest exact element; and what moved_by_delta()
/// says of the one that it moves most.
struct Error {
  double kernel = 0;
  double plain = 0;
  double largest = 0;
  double by_delta = 0;

  void add(double got, double plainly, double exact, double moved_squared = 0) {
    by_delta = std::max(by_delta, std::sqrt(moved_squared));
    const double off = std::fabs(got - exact);
    kernel = std::isnan(off) ? std::numeric_limits<double>::infinity()
                             : std::max(kernel, off);
    plain = std::max(plain, std::fabs(plainly - exact));
    largest = std::max(largest, std::fabs(exact));
  }
};

template <typename T>
double rounded(double value) {
  return T::from(static_cast<float>(value)).value();
}

/// One unit of the last place of T beside 1.
template <typename T>
constexpr double kUnit = 2.0 / static_cast<double>(1LL << T::kDigits);

/// What rounding explains of a tensor's elements, the largest of which is `largest`.
template <typename T>
double most_off(double largest) {
  return (sizeof(T) == 4 ? 256.0 : 6.0) * kUnit<T> * std::max(0.25, largest);
}
/// Of a logarithm of a sum, beside the larger of itself and 1.
constexpr double kMostOffOfStats = 4e-6;

template <typename T>
void expect_small(const char* name, const Error& error, double times) {
  // Sums of a few hundred rounded products; in float the plain one rounds nothing.
  const double least =
      64 * kUnit<test::F32> * std::max({1.0, error.largest, error.by_delta}) +
      (sizeof(T) == 4 ? 0.0 : 0.5 * kUnit<T> * 1e-3) + kUnit<T> * error.by_delta;
  const double cap = most_off<T>(error.largest) + kUnit<T> * error.by_delta;
  EXPECT_LE(error.kernel, times * error.plain + (sizeof(T) == 4 ? cap : least))
      << name << ": the plain one is off by " << error.plain << ", the largest is "
      << error.largest;
  EXPECT_LE(error.kernel, cap) << name << ", of which the largest is " << error.largest
                               << ", by delta " << error.by_delta;
}

/// Compares what `call` wrote, of the backward pass too if `has_gradients`.
template <typename T>
void check(Call<T>& call, bool has_gradients) {
  const Problem& problem = call.problem;
  const Round exactly = [](double x) { return x; };
  const Round plainly = [](double x) { return rounded<T>(x); };
  Error o, dq, dk, dv, dbias;
  double lse_error = 0;
  std::vector<bool> written(call.o.size(), false);
  const I64 group = problem.heads / problem.kv_heads;
  const bool has_bias_gradient = call.grad_bias.size() != 0;
  std::vector<bool> is_of_bias(call.grad_bias.size());
  for (I64 b = 0; has_bias_gradient && b < problem.batch; ++b)
    for (I64 h = 0; h < problem.heads; ++h)
      for (I64 i = 0; i < problem.sq; ++i)
        for (I64 j = 0; j < problem.skv; ++j)
          is_of_bias[call.bias_at(b, h, i, j)] = true;
  std::vector<double> bias_exact(call.grad_bias.size(), 0.0), bias_plain = bias_exact,
                                                              bias_moved = bias_exact;
  for (I64 b = 0; b < problem.batch; ++b) {
    const I64 sq = call.length(b, true);
    const I64 skv = call.length(b, false);
    for (I64 kv_head = 0; kv_head < problem.kv_heads; ++kv_head) {
      const Matrix k = call.head(call.k, problem.k, b, kv_head, false, problem.dqk);
      const Matrix v = call.head(call.v, problem.v, b, kv_head, false, problem.dv);
      const auto rows = static_cast<std::size_t>(skv);
      Backward exact_sum{{},
                         zeros(rows, static_cast<std::size_t>(problem.dqk)),
                         zeros(rows, static_cast<std::size_t>(problem.dv)),
                         {}};
      Backward plain_sum = exact_sum;
      Backward moved_sum = exact_sum;
      for (I64 h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        const Matrix q = call.head(call.q, problem.q, b, h, true, problem.dqk);
        const Terms terms = call.terms(b, h);
        const auto width = static_cast<std::size_t>(problem.dv);
        const Forward exact = forward(q, k, v, width, terms, exactly);
        const Forward plain = forward(q, k, v, width, terms, plainly);
        for (I64 i = 0; i < problem.sq; ++i) {
          const auto row = static_cast<std::size_t>(i);
          const float lse = call.stats[static_cast<std::size_t>(
                                           (b * problem.heads + h) * problem.sq + i)]
                                .bits;
          const double want =
              i < sq ? exact.lse[row] : -std::numeric_limits<double>::infinity();
          if (std::isinf(want) || std::isnan(lse)) {
            EXPECT_EQ(lse, want) << "lse of " << b << ", " << h << ", " << i;
          } else {
            lse_error = std::max(
                lse_error, std::fabs(lse - want) / std::max(1.0, std::fabs(want)));
          }
          if (i >= call.rows(b, true))
            continue;
          for (I64 d = 0; d < problem.dv; ++d) {
            const std::size_t place = call.at(problem.o, b, h, i, d, true);
            written[place] = true;
            const auto col = static_cast<std::size_t>(d);
            const double zero = 0;
            o.add(call.o[place].value(), i < sq ? plain.o[row][col] : zero,
                  i < sq ? exact.o[row][col] : zero);
          }
        }
        if (!has_gradients)
          continue;
        const Matrix grad = call.head(call.grad_o, problem.o, b, h, true, problem.dv);
        const Backward right = backward(q, k, v, grad, exact, terms, exactly);
        const Backward near = backward(q, k, v, grad, plain, terms, plainly);
        const Backward moved = moved_by_delta(q, k, grad, exact, terms);
        for (I64 i = 0; i < call.rows(b, true); ++i) {
          for (I64 d = 0; d < problem.dqk; ++d) {
            const double got =
                call.grad_q[call.at(problem.q, b, h, i, d, true)].value();
            const auto row = static_cast<std::size_t>(i);
            const auto col = static_cast<std::size_t>(d);
            dq.add(got, i < sq ? near.dq[row][col] : 0, i < sq ? right.dq[row][col] : 0,
                   i < sq ? moved.dq[row][col] : 0);
          }
        }
        const auto add = [&](Matrix& sum, const Matrix& more) {
          for (std::size_t j = 0; j < sum.size(); ++j) {
            for (std::size_t d = 0; d < sum[j].size(); ++d) sum[j][d] += more[j][d];
          }
        };
        add(exact_sum.dk, right.dk);
        add(exact_sum.dv, right.dv);
        add(plain_sum.dk, near.dk);
        add(plain_sum.dv, near.dv);
        add(moved_sum.dk, moved.dk);
        if (has_bias_gradient) {
          for (I64 i = 0; i < sq; ++i) {
            for (I64 j = 0; j < skv; ++j) {
              const std::size_t place = call.bias_at(b, h, i, j);
              bias_exact[place] +=
                  right.ds[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
              bias_plain[place] +=
                  near.ds[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
              bias_moved[place] +=
                  moved.ds[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
            }
          }
        }
      }
      if (!has_gradients)
        continue;
      for (I64 j = 0; j < call.rows(b, false); ++j) {
        const auto row = static_cast<std::size_t>(j);
        for (I64 d = 0; d < problem.dqk; ++d) {
          const auto col = static_cast<std::size_t>(d);
          dk.add(call.grad_k[call.at(problem.k, b, kv_head, j, d, false)].value(),
                 j < skv ? rounded<T>(plain_sum.dk[row][col]) : 0,
                 j < skv ? exact_sum.dk[row][col] : 0,
                 j < skv ? moved_sum.dk[row][col] : 0);
        }
        for (I64 d = 0; d < problem.dv; ++d) {
          const auto col = static_cast<std::size_t>(d);
          dv.add(call.grad_v[call.at(problem.v, b, kv_head, j, d, false)].value(),
                 j < skv ? rounded<T>(plain_sum.dv[row][col]) : 0,
                 j < skv ? exact_sum.dv[row][col] : 0);
        }
      }
    }
  }
  for (std::size_t i = 0; i < written.size(); ++i) {
    if (!written[i]) {
      EXPECT_TRUE(std::isnan(call.o[i].value()))
          << "o is written between its rows: " << i;
    }
  }
  EXPECT_LE(lse_error, kMostOffOfStats);
  expect_small<T>("o", o, 2);
  if (!has_gradients)
    return;
  expect_small<T>("dq", dq, 3);
  expect_small<T>("dk", dk, 3);
  expect_small<T>("dv", dv, 3);
  if (has_bias_gradient) {
    for (std::size_t i = 0; i < bias_exact.size(); ++i) {
      const double got = call.grad_bias[i].value();
      if (is_of_bias[i])
        dbias.add(got, rounded<T>(bias_plain[i]), bias_exact[i], bias_moved[i]);
      else
        EXPECT_TRUE(std::isnan(got)) << "grad_bias is written between its rows: " << i;
    }
    expect_small<T>("dbias", dbias, 3);
  }
}

/// Of two calls that were run: everything that they wrote.
template <typename T>
void expect_same_bits(const Call<T>& a, const Call<T>& b) {
  EXPECT_TRUE(same_bits(a.o, b.o)) << "o";
  EXPECT_TRUE(same_bits(a.stats, b.stats)) << "stats";
  EXPECT_TRUE(same_bits(a.grad_q, b.grad_q)) << "dq";
  EXPECT_TRUE(same_bits(a.grad_k, b.grad_k)) << "dk";
  EXPECT_TRUE(same_bits(a.grad_v, b.grad_v)) << "dv";
  EXPECT_TRUE(same_bits(a.grad_bias, b.grad_bias)) << "dbias";
}

/// Runs both passes and compares everything that they write.
inline void check_both(Problem problem, const Setting& setting = {}) {
  SCOPED_TRACE(to_string(problem) + " on " + to_string(setting.capability));
  problem.bias_gradient = problem.bias_kind == Bias::kPostScale;
  test::with_type(problem.dtype, [&]<typename T>() {
    Call<T> call(problem, setting);
    call.run_both();
    if (!testing::Test::HasFatalFailure())
      check(call, true);
  });
}

}  // namespace kiln::attention_test
