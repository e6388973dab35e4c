// What is added to a score and what is dropped, against double.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "ops/cudnn_tensors.h"
#include "tests/integration/attention_kernel/check.h"
#include "tests/support/kernels/run_kernel.h"
#include "tests/support/kernels/run_plan.h"

namespace kiln::attention_test {
namespace {

/// [batch, heads, sq, skv]; 0: alike.
Strides bias_by(I64 batch, I64 head, I64 sequence) {
  return {.batch = batch, .head = head, .sequence = sequence, .dim = 1};
}

TEST(AttentionBias, IsReadByItsStridesAndItsGradientIsTheSumOverWhatItIsAlikeFor) {
  constexpr I64 kQueries = 35;
  constexpr I64 kRow = 70;
  constexpr I64 kHead = kQueries * kRow;
  for (const Strides& by :
       {bias_by(0, 0, kRow), bias_by(kHead, 0, kRow), bias_by(2 * kHead, kHead, kRow),
        bias_by(80, 0, 2 * 80 + 7)})
    for (const ops::DType dtype : {ops::DType::kBf16, ops::DType::kF32})
      check_both(problem_of(
          dtype, {2, 2, kQueries, 64}, {2, 1, kRow, 64},
          {.mask = Mask::kCausal, .bias_kind = Bias::kPostScale, .bias = by}));
}

TEST(AttentionBias, MayBeAlikeForAllQueriesAndHaveAnotherPlaceBetweenItsRows) {
  for (const Strides& by :
       {bias_by(70, 0, 0), bias_by(0, 0, 0), bias_by(0, 40 * 96, 96)})
    for (const ops::DType dtype : {ops::DType::kBf16, ops::DType::kF32})
      test::with_type(dtype, [&]<typename T>() {
        Call<T> call(problem_of(dtype, {2, 2, 35, 64}, {2, 2, 70, 64},
                                {.bias_kind = Bias::kPostScale, .bias = by}));
        call.run_both();
        check(call, true);
      });
}

TEST(AttentionBias, OfAlibiFallsWithTheDistanceForEveryNumberOfHeads) {
  for (const ops::DType dtype : {ops::DType::kBf16, ops::DType::kF32}) {
    for (const I64 heads : {1, 4, 6})
      check_both(
          problem_of(dtype, {1, heads, 35, 64}, {1, heads, 70, 64},
                     {.mask = Mask::kCausalBottomRight, .bias_kind = Bias::kAlibi}));
  }
}

TEST(AttentionBias, OfMinusInfinityMasks) {
  // A causal mask, and the same as a bias: equal to the last bit but for the order of
  // nothing, since what is not seen adds nothing. Of a query that sees two keys or less
  // delta is computed in another way, and it is the mask that says so: all see three.
  Problem causal =
      problem_of(ops::DType::kBf16, {1, 1, 68, 64}, {1, 1, 70, 64},
                 {.mask = Mask::kCausalBottomRight, .bias_kind = Bias::kPostScale});
  Problem biased = causal;
  biased.mask = Mask::kNone;
  Call<test::Bf16> a(causal);
  Call<test::Bf16> b(biased);
  for (I64 i = 0; i < 68; ++i) {
    for (I64 j = 0; j < 70; ++j) {
      const auto at = static_cast<std::size_t>(i * 70 + j);
      a.bias[at] = test::Bf16::from(0.0F);
      b.bias[at] = test::Bf16::from(j > i + 2 ? -test::kInfinity : 0.0F);
    }
  }
  a.run_both();
  b.run_both();
  expect_same_bits(a, b);
}

TEST(AttentionBias, OfBytesIsMinusInfinityWhereTheyAre0AndNothingElsewhere) {
  for (const Strides& by : {bias_by(0, 0, 70), bias_by(2 * 35 * 70, 35 * 70, 70),
                            bias_by(70, 0, 0), bias_by(83, 0, 2 * 83 + 7)})
    for (const ops::DType dtype : {ops::DType::kBf16, ops::DType::kF32})
      test::with_type(dtype, [&]<typename T>() {
        Problem problem = problem_of(dtype, {2, 2, 35, 128}, {2, 1, 70, 128},
                                     {.bias_kind = Bias::kBoolean, .bias = by});
        SCOPED_TRACE(to_string(problem));
        Call<T> boolean(problem);
        problem.bias_kind = Bias::kPostScale;
        Call<T> added(problem);
        for (I64 j = 0; j < 70; ++j)  // a query that sees nothing
          boolean.mask[boolean.bias_at(0, 0, 3, j)].bits = 0;
        for (std::size_t i = 0; i < added.bias.size(); ++i)
          added.bias[i] = T::from(boolean.mask[i].bits == 0 ? -test::kInfinity : 0.0F);
        boolean.run_both();
        added.run_both();
        expect_same_bits(boolean, added);
        EXPECT_EQ(boolean.stats[3].bits, -test::kInfinity);
        EXPECT_EQ(boolean.o[boolean.at(problem.o, 0, 0, 3, 0, true)].value(), 0);
      });
}

TEST(AttentionBias, OfBytesIsWrittenForCudnnAsOneThatIsAddedOfItsOwnSize) {
  constexpr std::size_t kKeys = 1500;  // of two blocks
  constexpr std::size_t kApart = 1600;
  constexpr std::size_t kRows = 2 * 3;
  std::vector<std::uint8_t> mask(kRows * kApart);
  for (std::size_t i = 0; i < mask.size(); ++i)
    mask[i] = static_cast<std::uint8_t>(i * i % 7);
  for (const ops::DType dtype : {ops::DType::kBf16, ops::DType::kF16, ops::DType::kF32})
    test::with_type(dtype, [&]<typename T>() {
      const Problem problem = problem_of(
          dtype, {2, 4, 3, 64}, {2, 4, kKeys, 64},
          {.bias_kind = Bias::kBoolean, .bias = bias_by(3 * kApart, 0, kApart)});
      const std::uint64_t bytes = ops::bytes_before_plan(problem);
      EXPECT_EQ(bytes, (kRows * kKeys * sizeof(T) + 255) / 256 * 256);
      std::vector<T> out(bytes / sizeof(T), T::from(1));
      const ops::AttentionTensors tensors{
          .bias = mask.data(), .workspace = out.data(), .workspace_bytes = bytes};
      const kiln_cpu::LentMemory lent_out(out);
      const kiln_cpu::LentMemory lent_mask(mask);
      const auto done =
          kiln_cpu::run_plan(ops::launches_before_plan({problem, tensors}),
                             kiln_cpu::kernels_of_program());
      ASSERT_TRUE(done) << done.error().message;
      int wrong = 0;
      for (std::size_t i = 0; i < kRows * kKeys; ++i)
        wrong += out[i].value() !=
                 (mask[i / kKeys * kApart + i % kKeys] == 0 ? -test::kInfinity : 0);
      EXPECT_EQ(wrong, 0);
      EXPECT_EQ(out[kRows * kKeys].value(), 1) << "written beyond its size";
    });
}

/// Both passes of 3 queries and 70 keys, to each of which `bias` is added.
template <typename T>
std::unique_ptr<Call<T>> with_bias_everywhere(ops::DType dtype, float bias) {
  auto call = std::make_unique<Call<T>>(problem_of(
      dtype,
      {.heads = 1, .sq = 3, .skv = 70, .dqk = 64, .bias_kind = Bias::kPostScale}));
  call->bias.fill(bias);
  call->run_both();
  return call;
}

// As masks have it: a row of nothing else is one that sees all keys alike.
TEST(AttentionBias, OfALowNumberEverywhereIsNoMask) {
  for (const ops::DType dtype : {ops::DType::kBf16, ops::DType::kF32}) {
    test::with_type(dtype, [&]<typename T>() {
      for (const float bias : {T::kLowest, -1.7e38F, -1e30F, -1e9F}) {
        SCOPED_TRACE(bias);
        const auto run = with_bias_everywhere<T>(dtype, bias);
        Call<T>& call = *run;
        double mean = 0;  // of the first dimension of v: all are seen alike
        for (std::size_t j = 0; j < 70; ++j) mean += call.v[j * 64].value() / 70;
        EXPECT_NEAR(call.o[0].value(), mean, 0.01);
        // Where lse has no room left for log(70), probabilities are up to 1.
        for (const auto* const tensor : {&call.grad_q, &call.grad_k, &call.grad_v}) {
          double largest = 0;
          for (const T& each : *tensor)
            largest = std::max(largest, std::fabs(each.value()));
          EXPECT_LT(largest, 1000);
        }
      }
    });
  }
}

TEST(AttentionBias, OfTheHighestNumberEverywhereIsAddedAsAnyOther) {
  for (const ops::DType dtype : {ops::DType::kBf16, ops::DType::kF32}) {
    test::with_type(dtype, [&]<typename T>() {
      const auto run = with_bias_everywhere<T>(dtype, -T::kLowest);
      Call<T>& call = *run;
      double mean = 0;
      for (std::size_t j = 0; j < 70; ++j) mean += call.v[j * 64].value() / 70;
      EXPECT_NEAR(call.o[0].value(), mean, 0.01);
      for (const auto* const tensor : {&call.grad_q, &call.grad_k, &call.grad_v}) {
        for (const T& each : *tensor) EXPECT_LT(std::fabs(each.value()), 1000);
      }
    });
  }
}

TEST(AttentionBias, OfNanReachesTheOutputOfItsQueryAndNoOther) {
  for (const ops::DType dtype :
       {ops::DType::kBf16, ops::DType::kF16, ops::DType::kF32}) {
    test::with_type(dtype, [&]<typename T>() {
      Call<T> call(problem_of(
          dtype,
          {.heads = 1, .sq = 3, .skv = 70, .dqk = 64, .bias_kind = Bias::kPostScale}));
      call.bias[70 + 5] = T::from(test::kNaN);
      call.run(Pass::kForward);
      for (std::size_t at = 0; at < call.o.size(); ++at)
        EXPECT_EQ(std::isnan(call.o[at].value()), at / 64 == 1) << at;
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(std::isnan(call.stats[i].bits), i == 1) << i;
    });
  }
}

TEST(AttentionBias, AsLowAsScoresAreLostInMakesNoProbabilityAbove1) {
  // Each query with other scores, which the sum with the bias rounds in another way.
  for (const ops::DType dtype : {ops::DType::kBf16, ops::DType::kF32}) {
    test::with_type(dtype, [&]<typename T>() {
      constexpr I64 kQueries = 200;
      constexpr float kBias = -1e10F;
      Call<T> call(problem_of(dtype, {1, 1, kQueries, 64}, {1, 1, 70, 64},
                              {.bias_kind = Bias::kPostScale}),
                   {.scale = 1.0F});
      for (std::size_t i = 0; i < call.q.size(); ++i) {
        const std::size_t row = i / 64;
        call.q[i] =
            T::from(i % 64 == 0 ? -1e-7F * kBias * static_cast<float>(row) : 0.0F);
      }
      call.k.fill(1.0F);
      call.bias.fill(kBias);
      call.run_both();
      for (const T& each : call.grad_v) EXPECT_LT(std::fabs(each.value()), 1000);
    });
  }
}

TEST(AttentionBias, OfMinusInfinityEverywhereLeavesNothingToSee) {
  for (const ops::DType dtype : {ops::DType::kBf16, ops::DType::kF32}) {
    test::with_type(dtype, [&]<typename T>() {
      const auto run = with_bias_everywhere<T>(dtype, -test::kInfinity);
      Call<T>& call = *run;
      for (const test::F32& each : call.stats) EXPECT_EQ(each.bits, -test::kInfinity);
      for (const auto* const tensor :
           {&call.o, &call.grad_q, &call.grad_k, &call.grad_v}) {
        for (const T& each : *tensor) EXPECT_EQ(each.value(), 0);
      }
    });
  }
}

TEST(AttentionBias, OfAQueryThatSeesNothingLetsNoGradientThroughWhateverItsOutputIs) {
  for (const ops::DType dtype : {ops::DType::kBf16, ops::DType::kF32}) {
    test::with_type(dtype, [&]<typename T>() {
      Call<T> call(problem_of(dtype, {1, 1, 40, 64}, {1, 1, 20, 64},
                              {.mask = Mask::kCausalBottomRight}));
      call.run(Pass::kForward);
      for (std::size_t i = 0; i < 20 * 64; ++i) call.o[i] = T::from(test::kNaN);
      call.run(Pass::kBackward);
      for (const auto* const tensor : {&call.grad_q, &call.grad_k, &call.grad_v}) {
        for (const T& each : *tensor) EXPECT_TRUE(std::isfinite(each.value()));
      }
    });
  }
}

TEST(AttentionDropout, KeepsWhatItsNumbersSayInBothPasses) {
  for (const ops::DType dtype : {ops::DType::kBf16, ops::DType::kF32}) {
    for (const double dropout : {0.1, 0.9})
      check_both(
          problem_of(dtype, {2, 2, 35, 64}, {2, 1, 130, 64}, {.dropout = dropout}));
  }
}

TEST(AttentionDropout, OfEverythingLeavesNothing) {
  Call<test::Bf16> run(problem_of(
      ops::DType::kBf16, {.heads = 1, .sq = 35, .skv = 40, .dqk = 64, .dropout = 1}));
  run.run_both();
  for (const auto* const tensor : {&run.o, &run.grad_q, &run.grad_k, &run.grad_v}) {
    for (const test::Bf16& each : *tensor) EXPECT_EQ(each.value(), 0);
  }
}

TEST(AttentionDropout, DropsAsManyAsItIsTold) {
  constexpr int kQueries = 300;
  constexpr int kKeys = 1000;
  for (const std::uint32_t dropped : {6554U, 32768U, 60000U}) {
    const DropoutNumbers numbers{.seed = 7, .offset = 9, .dropped = dropped};
    int kept = 0;
    for (int i = 0; i < kQueries; ++i) {
      for (int j = 0; j < kKeys; ++j) kept += numbers.keeps(3, i, j) ? 1 : 0;
    }
    const double share = 1 - static_cast<double>(dropped) / 65536;
    const double deviation = std::sqrt(share * (1 - share) * kQueries * kKeys);
    EXPECT_NEAR(kept, share * kQueries * kKeys, 4 * deviation);
  }
}

TEST(AttentionDropout, IsPhilox) {
  // Of the generator's authors: 4x32, 10 rounds.
  EXPECT_EQ(
      philox({0, 0, 0, 0}, {0, 0}),
      (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(
      philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
      (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

}  // namespace
}  // namespace kiln::attention_test
