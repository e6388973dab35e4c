// Scores far beyond those of a model that learns. The forward pass is as exact as at
// any others; the backward pass loses digits with the statistics, which are floats, but
// makes no NaN and no infinity.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <initializer_list>

#include "tests/integration/attention_kernel/check.h"

namespace kiln::attention_test {
namespace {

/// The power of two below `score`: as the scale, it makes scores of about that size,
/// and rounds none.
float scale_of(double score) {
  return static_cast<float>(std::exp2(std::floor(std::log2(score))));
}

/// Scores are scale * q[0] * k[0]: for query i they rise, or fall, with the keys' `of`.
template <typename T, typename OfKey>
void set_scores(Call<T>& call, const OfKey& of_key) {
  const Problem& p = call.problem;
  call.q.fill(0.0F);
  call.k.fill(0.0F);
  for (I64 i = 0; i < p.sq; ++i)
    call.q[call.at(p.q, 0, 0, i, 0, true)] = T::from(i % 2 == 0 ? 1.0F : -1.0F);
  for (I64 j = 0; j < p.skv; ++j)
    call.k[call.at(p.k, 0, 0, j, 0, false)] = T::from(of_key(j));
}

/// o within what check() allows, and the statistics to two units of a float.
template <typename T>
void expect_exact_forward(Call<T>& call) {
  call.run(Pass::kForward);
  check(call, false);
  const Problem& p = call.problem;
  const Forward exact =
      forward(call.head(call.q, p.q, 0, 0, true, p.dqk),
              call.head(call.k, p.k, 0, 0, false, p.dqk),
              call.head(call.v, p.v, 0, 0, false, p.dv), static_cast<std::size_t>(p.dv),
              call.terms(0, 0), [](double x) { return x; });
  for (std::size_t i = 0; i < exact.lse.size(); ++i)
    EXPECT_NEAR(call.stats[i].bits, exact.lse[i],
                2 * kUnit<test::F32> * std::max(1.0, std::fabs(exact.lse[i])));
}

TEST(AttentionLargeScores, AreExactInTheForwardPassOfEveryKernel) {
  struct Kind {
    ops::DType dtype;
    I64 sq;
    I64 dqk;
    I64 dv;
  };
  for (const Kind& kind : std::initializer_list<Kind>{{ops::DType::kBf16, 3, 64, 64},
                                                      {ops::DType::kF16, 130, 64, 64},
                                                      {ops::DType::kF16, 65, 128, 128},
                                                      {ops::DType::kBf16, 3, 192, 128},
                                                      {ops::DType::kBf16, 3, 256, 256},
                                                      {ops::DType::kF32, 3, 64, 64}}) {
    for (const double score : {700.0, 1500.0, 1e5, 1e9, 1e12}) {
      if (kind.dqk != 64 && score < 1e9)
        continue;
      SCOPED_TRACE(
          fmt::format("{} {} {}", static_cast<int>(kind.dtype), kind.dqk, score));
      test::with_type(kind.dtype, [&]<typename T>() {
        Call<T> call(problem_of(kind.dtype, {.heads = 1,
                                             .sq = kind.sq,
                                             .skv = 140,
                                             .dqk = kind.dqk,
                                             .dv = kind.dv}),
                     {.scale = scale_of(score)});
        // Every three keys alike, a 512th more than the three before.
        set_scores(call, [](I64 j) { return 1.0F + static_cast<float>(j / 3) / 128; });
        expect_exact_forward(call);
      });
    }
  }
}

TEST(AttentionLargeScores, OfNumbersThatF16JustHoldsAreExactToo) {
  for (const float sign : {1.0F, -1.0F}) {
    Call<test::F16> call(
        problem_of(ops::DType::kF16, {.heads = 1, .sq = 1, .skv = 2, .dqk = 64}),
        {.scale = 1.0F});
    call.q.fill(sign * 31616.0F);
    call.k.fill(31616.0F);
    expect_exact_forward(call);
  }
}

TEST(AttentionLargeScores, MakeNoNanAndNoInfinityInTheBackwardPass) {
  for (const auto& each : {std::pair{ops::DType::kBf16, I64{64}},
                           {ops::DType::kF16, 128},
                           {ops::DType::kF32, 64}}) {
    const ops::DType dtype = each.first;  // clang 14 captures no structured binding
    const I64 dim = each.second;
    for (const Bias bias : {Bias::kNone, Bias::kAlibi}) {
      for (const double score : {1e6, 1e7, 1e9, 1e12, 1e30}) {
        if (bias != Bias::kNone && score != 1e9)
          continue;
        SCOPED_TRACE(fmt::format("{} {} {}", static_cast<int>(dtype), dim, score));
        test::with_type(dtype, [&]<typename T>() {
          // Each query has other scores, whose lse is rounded in another way.
          Call<T> call(
              problem_of(dtype,
                         {.heads = 1, .sq = 70, .skv = 70, .dqk = dim, .bias = bias}),
              {.scale = static_cast<float>(score)});
          set_scores(call, [](I64 j) { return j < 40 ? 1.0F : 0.5F; });
          for (I64 i = 0; i < 70; ++i)
            call.q[call.at(call.problem.q, 0, 0, i, 0, true)] =
                T::from(2 * std::sin(static_cast<float>(i)));
          call.run_both();
          // f16 does not hold scale * ds, which is what dq and dk are sums of.
          const auto is_right = [](double x) {
            return T::kDigits == test::F16::kDigits ? !std::isnan(x) : std::isfinite(x);
          };
          for (const auto* const tensor : {&call.grad_q, &call.grad_k})
            for (const T& each : *tensor) ASSERT_TRUE(is_right(each.value()));
          for (const T& each : call.o) ASSERT_TRUE(std::isfinite(each.value()));
          // No probability above 2.
          const Matrix grad = call.head(call.grad_o, call.problem.o, 0, 0, true, dim);
          for (I64 j = 0; j < 70; ++j) {
            for (I64 d = 0; d < dim; ++d) {
              double most = 0;
              for (const auto& row : grad) most += std::fabs(row[std::size_t(d)]);
              ASSERT_LE(
                  std::fabs(
                      call.grad_v[call.at(call.problem.v, 0, 0, j, d, false)].value()),
                  2 * most);
            }
          }
        });
      }
    }
  }
}

// As attention.h says.
TEST(AttentionLargeScores, CostTheBackwardPassDigitsInProportion) {
  for (const ops::DType dtype :
       {ops::DType::kBf16, ops::DType::kF16, ops::DType::kF32}) {
    for (const double score : {1e3, 1e5}) {
      test::with_type(dtype, [&]<typename T>() {
        // Eight queries of other scores, each with two keys alike.
        Call<T> call(problem_of(dtype, {.heads = 8, .sq = 1, .skv = 2, .dqk = 64}),
                     {.scale = static_cast<float>(score)});
        const Problem& p = call.problem;
        call.q.fill(0.0F);
        call.k.fill(0.0F);
        double off = 0;
        for (I64 h = 0; h < p.heads; ++h) {
          call.q[call.at(p.q, 0, h, 0, 0, true)] =
              T::from(std::sin(static_cast<float>(h + 1)));
          for (I64 j = 0; j < 2; ++j)
            call.k[call.at(p.k, 0, h, j, 0, false)] = T::from(1.0F);
        }
        call.run_both();
        call.each(p.v, false, p.dv, [&](std::size_t at, I64, I64 h, I64, I64 d) {
          const double grad = call.grad_o[call.at(p.o, 0, h, 0, d, true)].value();
          off = std::max(off, std::fabs(2 * call.grad_v[at].value() / grad - 1));
        });
        EXPECT_LE(off, 2e-7 * score + 1.01 * kUnit<T>) << score;
      });
    }
  }
}

}  // namespace
}  // namespace kiln::attention_test
