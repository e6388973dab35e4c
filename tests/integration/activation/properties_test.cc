// What holds for the activations whatever the numbers, and the references' gradients.

#include <gtest/gtest.h>

#include "tests/integration/activation/kernels.h"
#include "tests/integration/activation/problem.h"

namespace kiln::activation_test {
namespace {

using ops::GluLayout;

const Shape kSmallShape{.rows = 11, .cols = 40};

class ActivationProperties : public testing::TestWithParam<Unit> {};
class GluProperties : public testing::TestWithParam<Unit> {};

INSTANTIATE_TEST_SUITE_P(Units, ActivationProperties, testing::ValuesIn(all_units()),
                         kNameOf);
INSTANTIATE_TEST_SUITE_P(Units, GluProperties,
                         testing::ValuesIn(units_where([](const Unit& unit) {
                           return unit.gated;
                         })),
                         kNameOf);

/// The references' slopes are those of their values.
TEST_P(ActivationProperties, GradientsAreFiniteDifferencesOfTheDefinition) {
  constexpr double kStep = 1e-6;
  const Unit& unit = GetParam();
  const Limits limits{.alpha = 1.702F, .limit = 3.0F, .offset = 1.0F};
  for (int i = -24; i <= 24; ++i) {
    const double g = 0.37 * i - 0.03;
    for (const double l : {-4.1, -0.7, 0.3, 2.9, 5.5}) {
      const double weight = unit.has_weight ? 1.7 : 1;
      const Element at = element_of(unit, limits, g, l, weight);
      const auto y = [&](double dg, double dl, double dw) {
        return element_of(unit, limits, g + dg, l + dl, weight + dw).y;
      };
      const auto change = [&](double dg, double dl, double dw) {
        return (y(dg, dl, dw) - y(-dg, -dl, -dw)) / (2 * kStep);
      };
      EXPECT_NEAR(at.by_input.value, change(kStep, 0, 0), 1e-7) << g << " " << l;
      if (unit.gated) {
        EXPECT_NEAR(at.by_linear, change(0, kStep, 0), 1e-7) << g << " " << l;
      }
      if (unit.has_weight) {
        EXPECT_NEAR(at.by_weight, change(0, 0, kStep), 1e-7) << g << " " << l;
      }
    }
  }
}

TEST_P(GluProperties, PackedAndSplitInputsGiveTheSameBits) {
  with_type(GetParam().dtype, []<typename T>() {
    for (const Shape& shape : {kSmallShape, Shape{5, 13}}) {
      Problem<T> packed(GetParam(), shape, {});
      Problem<T> split(GetParam(), shape, {.layout = GluLayout::kSplit});
      const Results<T> a = packed.run();
      const Results<T> b = split.run();
      EXPECT_TRUE(same_bits(a.y, b.y));
      EXPECT_TRUE(same_bits(a.dbias, b.dbias));
      EXPECT_TRUE(same_bits(a.dweight, b.dweight));
      for (I64 i = 0; i < shape.rows * shape.cols; ++i) {
        for (int half = 0; half < 2; ++half) {
          const I64 row = i / shape.cols;
          const I64 col = i % shape.cols;
          EXPECT_EQ(packed.gradient(a, half, row, col),
                    split.gradient(b, half, row, col));
        }
      }
    }
  });
}

/// Runs both on the same inputs and expects the same bits.
template <typename T>
void expect_same(const Unit& a, const Unit& b, const Setting& setting,
                 float weight = 1.0F) {
  Problem<T> first(a, kSmallShape, setting);
  Problem<T> second(b, kSmallShape, setting);
  second.weight().fill(weight);
  const Results<T> one = first.run();
  const Results<T> two = second.run();
  EXPECT_TRUE(same_bits(one.y, two.y));
  EXPECT_TRUE(same_bits(one.dx, two.dx));
  EXPECT_TRUE(same_bits(one.dlinear, two.dlinear));
}

TEST(SwiGluProperties, WithAnInfiniteLimitIsTheUnclampedOne) {
  const Limits limits{.alpha = 1, .limit = kInfinity, .offset = 0};
  for (const char* dtype : {"f16", "bf16", "f32"}) {
    with_type(dtype, [&]<typename T>() {
      expect_same<T>(unit(std::string("swiglu_") + dtype),
                     unit(std::string("clamped_swiglu_") + dtype), {.limits = limits});
    });
  }
}

TEST(SwiGluProperties, WithWeightsOfOneIsTheUnweightedOne) {
  for (const char* dtype : {"f16", "bf16", "f32"}) {
    with_type(dtype, [&]<typename T>() {
      const std::string plain = std::string("swiglu_") + dtype;
      for (const GluLayout layout : {GluLayout::kPacked, GluLayout::kSplit})
        expect_same<T>(unit(plain), unit(plain + "_weight"), {.layout = layout});
    });
  }
}

}  // namespace
}  // namespace kiln::activation_test
