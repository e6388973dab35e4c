// Queries that see one or two keys. What rounding takes from o is then as large as all
// that is left of the gradients of scores: delta is not made of it.

#include <gtest/gtest.h>

#include <initializer_list>

#include "tests/integration/attention_kernel/check.h"

namespace kiln::attention_test {
namespace {

/// No element of dq, dk and dbias is off by more than the rounding of ds and of itself.
template <typename T>
void expect_no_rounding_of_o(Call<T>& call) {
  call.run_both();
  if (testing::Test::HasFatalFailure())
    return;
  const Problem& p = call.problem;
  const Matrix q = call.head(call.q, p.q, 0, 0, true, p.dqk);
  const Matrix k = call.head(call.k, p.k, 0, 0, false, p.dqk);
  const Matrix v = call.head(call.v, p.v, 0, 0, false, p.dv);
  const Matrix grad = call.head(call.grad_o, p.o, 0, 0, true, p.dv);
  const Terms terms = call.terms(0, 0);
  const Round exactly = [](double x) { return x; };
  const Forward exact =
      forward(q, k, v, static_cast<std::size_t>(p.dv), terms, exactly);
  const Backward right = backward(q, k, v, grad, exact, terms, exactly);
  constexpr double kFloat = 64 * kUnit<test::F32>;  // of sums of some ten products
  const auto near = [&](const char* name, double got, double want, double terms_sum) {
    EXPECT_NEAR(got, want, kUnit<T> * (std::fabs(want) + terms_sum) + kFloat) << name;
  };
  for (I64 d = 0; d < p.dqk; ++d) {
    const auto col = static_cast<std::size_t>(d);
    std::vector<double> of_keys(k.size(), 0.0);
    for (std::size_t i = 0; i < q.size(); ++i) {
      double of_query = 0;
      for (std::size_t j = 0; j < k.size(); ++j) {
        of_query += std::fabs(terms.scale * right.ds[i][j] * k[j][col]);
        of_keys[j] += std::fabs(terms.scale * right.ds[i][j] * q[i][col]);
      }
      near("dq", call.grad_q[call.at(p.q, 0, 0, static_cast<I64>(i), d, true)].value(),
           right.dq[i][col], of_query);
    }
    for (std::size_t j = 0; j < k.size(); ++j)
      near("dk", call.grad_k[call.at(p.k, 0, 0, static_cast<I64>(j), d, false)].value(),
           right.dk[j][col], of_keys[j]);
  }
  for (std::size_t at = 0; at < call.grad_bias.size(); ++at)
    near("dbias", call.grad_bias[at].value(), right.ds[at / k.size()][at % k.size()],
         0);
}

TEST(AttentionFewKeys, TakeNoRoundingOfTheOutputIntoTheirGradients) {
  struct Keys {
    I64 skv;
    I64 left;
  };
  for (const auto& [dtype, dim] : {std::pair{ops::DType::kBf16, I64{64}},
                                   {ops::DType::kF16, 128},
                                   {ops::DType::kBf16, 50},
                                   {ops::DType::kF32, 64}}) {
    for (const Keys& keys : std::initializer_list<Keys>{{1, -1}, {2, -1}, {70, 1}}) {
      for (const double dropout : {0.0, 0.25}) {
        for (const Bias bias : {Bias::kNone, Bias::kPostScale}) {
          if (bias != Bias::kNone && (dropout > 0 || dtype == ops::DType::kF16))
            continue;
          ops::AttentionProblem of{.heads = 1,
                                   .sq = 70,
                                   .skv = keys.skv,
                                   .dqk = dim,
                                   .mask = keys.left < 0 ? Mask::kNone : Mask::kCausal,
                                   .window_left = keys.left,
                                   .bias_kind = bias,
                                   .dropout = dropout};
          Problem problem = problem_of(dtype, of);
          problem.bias_gradient = bias != Bias::kNone;
          SCOPED_TRACE(to_string(problem));
          test::with_type(dtype, [&]<typename T>() {
            Call<T> call(problem);
            expect_no_rounding_of_o(call);
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace kiln::attention_test
