// Scores far beyond those of a model that learns. The forward pass is as exact as at
// any others, up to the rounding of a score to float; the backward pass loses digits
// with the statistics, which are floats, but makes no NaN and no infinity.

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
        Call<T> call(problem_of(kind.dtype, {1, 1, kind.sq, kind.dqk},
                                {1, 1, 140, kind.dqk}, {.dv = kind.dv}),
                     {.scale = scale_of(score)});
        // Every three keys alike, a 512th more than the three before.
        set_scores(call, [](I64 j) {
          const I64 three = j / 3;
          return 1.0F + static_cast<float>(three) / 128;
        });
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

/// Scores lie around 1.5 times the scale, a power of two. They rise with the keys, or
/// fall for every second query, by a half or, where that is more, by the last place of
/// a float: log2(e) times such a score has one place less, and neighbours become equal.
/// A bias takes the rise away from every third key, and a step more from the next, so
/// that all of these are alike, and masks the others. A float holds each of the sums.
template <typename T>
void set_close_scores(Call<T>& call) {
  const Problem& p = call.problem;
  const float scale = call.setting.scale.value();
  const float step = std::max(0.5F, scale * 0x1p-23F);
  const auto sign_of = [](I64 i) { return i % 2 == 0 ? 1.0F : -1.0F; };
  call.q.fill(0.0F);
  call.k.fill(0.0F);
  for (I64 i = 0; i < p.sq; ++i) {
    for (const I64 d : {0, 1})
      call.q[call.at(p.q, 0, 0, i, d, true)] = T::from(sign_of(i));
  }
  for (I64 j = 0; j < p.skv; ++j) {
    call.k[call.at(p.k, 0, 0, j, 0, false)] = T::from(1.5F);
    call.k[call.at(p.k, 0, 0, j, 1, false)] =
        T::from(static_cast<float>(j) * (step / scale));
  }
  for (std::size_t at = 0; at < call.bias.size(); ++at) {
    const I64 j = static_cast<I64>(at) % p.skv;
    const I64 i = static_cast<I64>(at) / p.skv % p.sq;
    const float rise = step * static_cast<float>(j + j % 3);
    call.bias[at] = T::from(j % 3 == 2 ? -test::kInfinity : -sign_of(i) * rise);
  }
}

TEST(AttentionLargeScores, AreAsExactWithABiasAMaskAndDropout) {
  struct Kind {
    ops::DType dtype;
    I64 dqk;
    I64 dv;
    Bias bias;
    I64 window_left = -1;
    double dropout = 0;
  };
  for (const Kind& kind : std::initializer_list<Kind>{
           {ops::DType::kBf16, 64, 64, Bias::kPostScale},
           {ops::DType::kF16, 128, 128, Bias::kPostScale},
           {ops::DType::kBf16, 192, 128, Bias::kPostScale},
           {ops::DType::kBf16, 256, 256, Bias::kPostScale},
           {ops::DType::kF32, 64, 64, Bias::kPostScale},
           {ops::DType::kF16, 64, 64, Bias::kAlibi},
           {ops::DType::kBf16, 128, 128, Bias::kAlibi},
           {ops::DType::kF32, 64, 64, Bias::kAlibi},
           {ops::DType::kF16, 64, 64, Bias::kNone, 30},
           {ops::DType::kF16, 64, 64, Bias::kNone, -1, 0.25},
           {ops::DType::kF16, 128, 128, Bias::kPostScale, 30, 0.25}}) {
    for (const double score : {1e5, 1e9, 1e12}) {
      if (kind.dqk > 128 && score != 1e9)
        continue;
      if (kind.dtype == ops::DType::kF16 && kind.bias == Bias::kPostScale &&
          score > 1e9)
        continue;  // the type does not hold the bias
      SCOPED_TRACE(fmt::format("{} {} {} {}", static_cast<int>(kind.dtype), kind.dqk,
                               static_cast<int>(kind.bias), score));
      test::with_type(kind.dtype, [&]<typename T>() {
        // ALiBi's slope of 1/2 keeps a sum of 1e5 exact; of others it is lost whole, in
        // a score that its neighbours are 64 and more away from.
        const I64 heads = kind.bias == Bias::kAlibi && score < 1e6 ? 8 : 1;
        Call<T> call(
            problem_of(kind.dtype, {1, heads, 20, kind.dqk}, {1, heads, 140, kind.dqk},
                       {.dv = kind.dv,
                        .mask = Mask::kCausalBottomRight,
                        .window_left = kind.window_left,
                        .bias_kind = kind.bias,
                        .dropout = kind.dropout}),
            {.scale = scale_of(score)});
        set_close_scores(call);
        expect_exact_forward(call);
      });
    }
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
              problem_of(
                  dtype,
                  {.heads = 1, .sq = 70, .skv = 70, .dqk = dim, .bias_kind = bias}),
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
  for (const auto& each : {std::pair{ops::DType::kBf16, Bias::kNone},
                           {ops::DType::kBf16, Bias::kPostScale},
                           {ops::DType::kF16, Bias::kNone},
                           {ops::DType::kF16, Bias::kPostScale},
                           {ops::DType::kF32, Bias::kNone},
                           {ops::DType::kF32, Bias::kPostScale}}) {
    const ops::DType dtype = each.first;  // clang 14 captures no structured binding
    const Bias bias = each.second;
    for (const double factor : {1e3, 1e5}) {
      test::with_type(dtype, [&]<typename T>() {
        // Eight queries of other scores, each with two keys alike.
        Call<T> call(
            problem_of(dtype,
                       {.heads = 8, .sq = 1, .skv = 2, .dqk = 64, .bias_kind = bias}),
            {.scale = static_cast<float>(factor)});
        const Problem& p = call.problem;
        const double score = bias == Bias::kNone ? factor : 1.25 * factor;
        call.bias.fill(static_cast<float>(factor / 4));
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
        EXPECT_LE(off, 2e-7 * score + 1.01 * kUnit<T>)
            << score << " " << static_cast<int>(bias);
      });
    }
  }
}

// As attention.h says, too.
TEST(AttentionLargeScores, FadeInTheBackwardPassOrHaveProbabilitiesUpTo1) {
  for (const auto& each : {std::pair{ops::DType::kBf16, Bias::kNone},
                           {ops::DType::kBf16, Bias::kPostScale},
                           {ops::DType::kF32, Bias::kNone}}) {
    const ops::DType dtype = each.first;
    const Bias bias = each.second;
    test::with_type(dtype, [&]<typename T>() {
      Call<T> call(
          problem_of(dtype,
                     {.heads = 1, .sq = 1, .skv = 3, .dqk = 64, .bias_kind = bias}),
          {.scale = scale_of(1e9)});
      set_scores(call, [](I64) { return 1.0F; });
      call.bias.fill(0.0F);
      call.run_both();
      const Problem& p = call.problem;
      const bool fades = dtype == ops::DType::kBf16 && bias == Bias::kNone;
      call.each(p.v, false, p.dv, [&](std::size_t at, I64, I64, I64, I64 d) {
        const double grad = call.grad_o[call.at(p.o, 0, 0, 0, d, true)].value();
        EXPECT_EQ(call.grad_v[at].value(), fades ? 0 : grad);
      });
    });
  }
}

}  // namespace
}  // namespace kiln::attention_test
