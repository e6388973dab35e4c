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

TEST(LayerNormProperties, ARowHasMeanZeroAndVarianceOne) {
  Problem<F32, F32> problem(kLayer, {.rows = 3, .cols = 384});
  problem.weight.fill(1);
  const auto out = problem.forward();
  for (I64 row = 0; row < 3; ++row) {
    const Normal normal = normalize(values(out.y.data() + row * 384, 384), true, 0);
    EXPECT_NEAR(normal.mean, 0, 1e-6);
    EXPECT_NEAR(normal.rstd, 1, 1e-5);
  }
}

TEST(LayerNormProperties, AShiftOfARowChangesNothing) {
  Problem<F32, F32> problem(kLayer, {.rows = 2, .cols = 384});
  for (F32& x : problem.x)  // so that a shift is exact
    x = F32::from(std::round(x.bits * 64) / 64);
  const auto before = problem.forward();
  for (F32& x : problem.x) x.bits += 1024;
  const auto after = problem.forward();
  for (std::size_t i = 0; i < problem.x.size(); ++i)
    EXPECT_NEAR(before.y[i].value(), after.y[i].value(), 4e-6) << i;
}

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

TEST(LayerNormProperties, OfARowWithMeanZeroItIsTheRmsNorm) {
  Problem<F32, F32> layer(kLayer, {.rows = 2, .cols = 384});
  Problem<F32, F32> rms(kRms, {.rows = 2, .cols = 384});
  for (std::size_t i = 0; i < layer.x.size(); i += 2)
    layer.x[i + 1].bits = -layer.x[i].bits;
  std::copy_n(layer.x.data(), layer.x.size(), rms.x.data());
  const auto of_layer = layer.forward();
  const auto of_rms = rms.forward();
  for (std::size_t i = 0; i < layer.x.size(); ++i)
    EXPECT_NEAR(of_layer.y[i].value(), of_rms.y[i].value(), 2e-6) << i;
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

/// What the rounding of y may do to each dx: xh is off by it, over the weight.
template <typename T>
Row error_from_output(const Normal& normal, const Row& g, const Row& scale,
                      const Row& y) {
  const auto n = static_cast<double>(g.size());
  Row of_xh;
  double crossed = 0;
  double of_crossed = 0;
  for (std::size_t j = 0; j < g.size(); ++j) {
    of_xh.push_back(ulp<T>(y[j]) / 2 / std::fabs(scale[j]));
    crossed += g[j] * normal.xh[j] / n;
    of_crossed += std::fabs(g[j]) * of_xh[j] / n;
  }
  Row error;
  for (std::size_t j = 0; j < g.size(); ++j)
    error.push_back(normal.rstd * (of_xh[j] * (std::fabs(crossed) + of_crossed) +
                                   std::fabs(normal.xh[j]) * of_crossed));
  return error;
}

template <typename T, typename W>
void expect_gradient_of_the_loss(const Configuration& of, I64 cols) {
  const Setting setting{.rows = 2, .cols = cols};
  const Problem<T, W> problem(of, setting);
  const auto out = problem.backward();
  const auto y = problem.output();
  for (I64 row = 0; row < setting.rows; ++row) {
    const Row x = values(problem.x.data() + row * cols, cols);
    Row g = values(problem.dy.data() + row * cols, cols);
    double largest = 0;
    Row scale;
    for (std::size_t j = 0; j < g.size(); ++j) {
      scale.push_back(problem.scale(j));
      g[j] *= scale[j];
      largest = std::max(largest, std::fabs(g[j]));
    }
    const Normal normal = normalize(x, of.layer, setting.eps);
    const Row change = finite_differences(x, g, of.layer, setting.eps);
    const Row of_output =
        of.from_output ? error_from_output<T>(normal, g, scale,
                                              values(y.data() + row * cols, cols))
                       : Row(x.size());
    for (std::size_t j = 0; j < x.size(); ++j) {
      const std::size_t at = static_cast<std::size_t>(row * cols) + j;
      const double more = of.residual ? problem.residual[at].value() : 0;
      const double want = change[j] + more;
      // x and the sums are in it with a factor of rstd^2 at most.
      const double relative = 0x1p-18 * largest * normal.rstd * (1 + normal.rstd);
      EXPECT_NEAR(out.dx[at].value(), want,
                  0.51 * ulp<T>(want) + relative + 1e-7 + 1.01 * of_output[j])
          << "row " << row << " column " << j;
    }
  }
}

class NormGradients : public testing::TestWithParam<Configuration> {};
INSTANTIATE_TEST_SUITE_P(All, NormGradients, testing::ValuesIn(configurations()),
                         kNameOf);
INSTANTIATE_TEST_SUITE_P(Other, NormGradients, testing::ValuesIn(other_forms()),
                         kNameOf);

TEST_P(NormGradients, FollowTheChangeOfTheLoss) {
  if (GetParam().max_cols == 128 || GetParam().max_cols == 512) {
    with_types(GetParam(), []<typename T, typename W>() {
      for (const I64 cols : {aligned_length(GetParam()), odd_length(GetParam())})
        expect_gradient_of_the_loss<T, W>(GetParam(), cols);
    });
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
