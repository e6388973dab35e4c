// What holds for norms whatever the numbers are, and their gradients against the change
// of the loss.

#include "tests/integration/norm/problem.h"

namespace kiln::norm_test {
namespace {

using ops::DType;
using test::Bf16;
using test::F16;

const Configuration kLayer{true, DType::kF32, DType::kF32, 512, false, false};
const Configuration kRms{false, DType::kF32, DType::kF32, 512, false, false};

TEST(RmsNormProperties, APowerOfTwoTimesARowIsTheSameBits) {
  Problem<F32, F32> problem(kRms, {.rows = 2, .cols = 384, .eps = 0});
  const auto before = problem.forward();
  for (F32& x : problem.x) x.bits *= 16;
  EXPECT_TRUE(same_bits(before.y, problem.forward().y));
}

// As 1 / sqrt(infinity) has it: a sum of squares that float does not hold leaves 0.
TEST(RmsNormProperties, OfAnInfinityIsNaNThereAndZeroBesideIt) {
  Problem<F32, F32> problem(kRms, {.rows = 3, .cols = 384});
  problem.x[7].bits = -test::kInfinity;
  problem.x[384 + 7].bits = 2e19F;
  const auto out = problem.forward();
  for (std::size_t i = 0; i < 768; ++i) {
    if (i == 7)
      EXPECT_TRUE(std::isnan(out.y[i].value()));
    else
      EXPECT_EQ(out.y[i].value(), 0) << i;
  }
  EXPECT_EQ(out.rstd[0].bits, 0);
  EXPECT_EQ(out.rstd[1].bits, 0);
  EXPECT_GT(out.rstd[2].bits, 0);
}

TEST(LayerNormProperties, OfAnInfinityIsNaNInItsRow) {
  Problem<F32, F32> problem(kLayer, {.rows = 2, .cols = 384});
  problem.x[7].bits = test::kInfinity;
  const auto out = problem.forward();
  for (std::size_t i = 0; i < out.y.size(); ++i)
    EXPECT_EQ(std::isnan(out.y[i].value()), i < 384) << i;
}

template <bool kLayerNorm>
void expect_fused_addition_as_two_steps() {
  for (const I64 cols : {384, 385}) {
    Problem<Bf16, Bf16> fused(
        {kLayerNorm, DType::kBf16, DType::kBf16, 512, true, false},
        {.rows = 3, .cols = cols});
    const auto out = fused.forward();
    Problem<Bf16, Bf16> plain(
        {kLayerNorm, DType::kBf16, DType::kBf16, 512, false, kLayerNorm},
        {.rows = 3, .cols = cols});
    std::copy_n(out.sum.data(), out.sum.size(), plain.x.data());
    // -0 as the bias: what is added to is as it was.
    if (kLayerNorm)
      plain.bias.fill(-0.0F);
    EXPECT_TRUE(same_bits(out.y, plain.forward().y)) << cols;
  }
}

TEST(NormProperties, AFusedAdditionIsAnAdditionAndANormBitForBit) {
  expect_fused_addition_as_two_steps<true>();
  expect_fused_addition_as_two_steps<false>();
}

template <typename T>
void expect_zero_centred_as_one_more(Configuration of) {
  Problem<T, T> whole(of, {.rows = 3, .cols = aligned_length(of)});
  Problem<T, T> centred(of,
                        {.rows = 3, .cols = aligned_length(of), .zero_centered = true});
  for (std::size_t j = 0; j < whole.weight.size(); ++j) {
    const auto w = static_cast<float>(j % 16) / 32;  // exact, also with 1 more
    centred.weight[j] = T::from(w);
    whole.weight[j] = T::from(w + 1);
  }
  EXPECT_TRUE(same_bits(whole.forward().y, centred.forward().y));
  const auto a = whole.backward();
  const auto b = centred.backward();
  EXPECT_TRUE(same_bits(a.dx, b.dx));
  EXPECT_TRUE(same_bits(a.dweight, b.dweight));
}

TEST(NormProperties, AZeroCentredWeightIsTheWeightPlusOne) {
  expect_zero_centred_as_one_more<F32>(kLayer);
  expect_zero_centred_as_one_more<F32>(kRms);
  expect_zero_centred_as_one_more<Bf16>(
      {true, DType::kBf16, DType::kBf16, 128, false, true});
  expect_zero_centred_as_one_more<Bf16>(
      {false, DType::kBf16, DType::kBf16, 128, false, true});
}

/// y of an RMSNorm by each casting's definition, for the kernel's own rstd.
template <typename T>
void expect_casting(DType dtype, ops::RmsNormCasting casting, I64 cols) {
  const Configuration of{false, dtype, dtype, 128, false, false};
  const Problem<T, T> problem(of, {.rows = 4, .cols = cols});
  Tensor<T> y("y", problem.x.size());
  Tensor<F32> rstd("rstd", 4);
  run_operation(ops::RmsNormForward{.dtype = dtype,
                                    .y = y.data(),
                                    .x = problem.x.data(),
                                    .weight = problem.weight.data(),
                                    .rstd = reinterpret_cast<float*>(rstd.data()),
                                    .rows = 4,
                                    .cols = cols,
                                    .casting = casting},
                {});
  int differ = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto n = static_cast<std::size_t>(cols);
    const float xh = static_cast<float>(problem.x[i].value()) * rstd[i / n].bits;
    const auto w = static_cast<float>(problem.weight[i % n].value());
    const auto llama = T::from(static_cast<float>(T::from(xh).value()) * w);
    const auto none = T::from(xh * w);
    const auto gemma = T::from(xh * (w + 1));
    differ += llama.bits != none.bits ? 1 : 0;
    const auto want = casting == ops::RmsNormCasting::kLlama  ? llama
                      : casting == ops::RmsNormCasting::kNone ? none
                                                              : gemma;
    EXPECT_EQ(y[i].bits, want.bits) << i;
  }
  EXPECT_GT(differ, 0) << "the numbers tell nothing";
}

// Guards against one casting in the place of another: they differ by a rounding, which
// a model that was trained with one of them has in its weights.
TEST(RmsNormCastings, AreEachTheirDefinitionBitForBit) {
  using enum ops::RmsNormCasting;
  for (const I64 cols : {64, 65}) {
    for (const auto casting : {kNone, kLlama, kGemma})
      expect_casting<Bf16>(DType::kBf16, casting, cols);
  }
}

TEST(NormReference, ItsGradientsAreThoseOfFiniteDifferences) {
  for (const bool layer : {true, false}) {
    const Problem<F32, F32> problem(layer ? kLayer : kRms, {.rows = 1, .cols = 72});
    const Row x = values(problem.x.data(), 72);
    const Row g = values(problem.dy.data(), 72);
    const Normal normal = normalize(x, layer, 1e-5);
    const Row dx = gradients(g, normal.xh, normal.rstd, layer, 0).dx;
    const Row change = finite_differences(x, g, layer, 1e-5);
    for (std::size_t j = 0; j < x.size(); ++j) EXPECT_NEAR(dx[j], change[j], 1e-8) << j;
  }
}

// Guards against the infinities and the NaN of a division by a weight that left nothing
// of x in y, or less than y's rounding.
TEST(NormsFromTheirOutput, CountAsZeroWhatAWeightOfZeroLeft) {
  for (const bool layer : {true, false}) {
    const Configuration of{layer, DType::kF16, DType::kF32, 512,
                           false, layer,       true,        true};
    for (const I64 cols : {aligned_length(of), odd_length(of)}) {
      Problem<F16, F32> problem(of, {.rows = 3, .cols = cols});
      problem.weight[0].bits = 0;
      problem.weight[1].bits = -0.0F;
      problem.weight[2].bits = 0x1p-126F;
      problem.weight[3].bits = 1e-30F;  // all of y is rounding
      const auto out = problem.backward();
      EXPECT_LE(problem.errors(out).excess, kStoreUlp);
      for (std::size_t i = 0; i < out.dx.size(); ++i)
        EXPECT_TRUE(std::isfinite(out.dx[i].value())) << i;
      for (std::size_t j = 0; j < 3; ++j) EXPECT_EQ(out.dweight[j].bits, 0) << j;
      EXPECT_TRUE(std::isfinite(out.dweight[3].value()));
    }
  }
}

TEST(NormsFromTheirOutput, KeepNaNInItsRow) {
  for (const bool layer : {true, false}) {
    const Configuration of{layer, DType::kF16, DType::kF32, 512,
                           false, layer,       true,        true};
    Problem<F16, F32> problem(of, {.rows = 3, .cols = aligned_length(of)});
    problem.weight[5].bits = 0;
    problem.x[problem.cols() + 5] = F16::from(kNaN);
    const auto out = problem.backward();
    for (std::size_t i = 0; i < out.dx.size(); ++i)
      EXPECT_EQ(std::isnan(out.dx[i].value()), i / problem.cols() == 1) << i;
  }
}

}  // namespace
}  // namespace kiln::norm_test
