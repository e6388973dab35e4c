// The prelude's sines and cosines, through the one kernel that asks for them: out[a] of
// a = 1 and b = 0 is the cosine, out[b] the sine.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>
#include <random>

#include "tests/integration/rope/kernels.h"
#include "tests/integration/rope/problem.h"

namespace kiln::rope_test {
namespace {

/// The angles' cosines and sines in turn.
std::vector<double> computed(const std::vector<float>& angles) {
  const Variant& variant =
      *std::ranges::find_if(kernels_of_program(), [](const Variant& each) {
        return each.name() == "rope_fwd:dtype=f32,style=interleaved,table=angles";
      });
  constexpr I64 kPairs = 256;
  const Shape shape{.sequence = static_cast<I64>(angles.size()) / kPairs,
                    .dim = 2 * kPairs,
                    .rotary = 2 * kPairs};
  Problem<F32, F32> problem(form_of(variant), shape, {.paired = true});
  for (std::size_t i = 0; i < angles.size(); ++i) {
    problem.table.angles[i] = F32::from(angles[i]);
    problem.q.in[2 * i] = F32::from(1);
    problem.q.in[2 * i + 1] = F32::from(0);
  }
  problem.run();
  return test::values(problem.q.out.data(), static_cast<I64>(problem.q.out.size()));
}

/// The largest error of both in ulp, against double.
double worst_error(const std::vector<float>& angles) {
  const std::vector<double> got = computed(angles);
  double worst = 0;
  for (std::size_t i = 0; i < angles.size(); ++i) {
    const double angle = angles[i];
    worst = std::max({worst, test::in_ulp<F32>(got[2 * i], std::cos(angle), 0),
                      test::in_ulp<F32>(got[2 * i + 1], std::sin(angle), 0)});
  }
  fmt::print("worst {:.4f} ulp\n", worst);
  return worst;
}

constexpr std::size_t kCount = std::size_t{1} << 16;

TEST(RopeSincos, IsRightUpToAMillion) {
  std::mt19937 random(5);  // NOLINT(cert-msc51-cpp): the same every time
  for (const float most : {0.8F, 7.0F, 1000.0F, 1.0e6F}) {
    std::uniform_real_distribution<float> uniform(-most, most);
    std::vector<float> angles(kCount);
    for (float& angle : angles) angle = uniform(random);
    EXPECT_LE(worst_error(angles), 0.83) << "up to " << most;
  }
}

TEST(RopeSincos, IsRightForEveryFiniteFloat) {
  std::mt19937 random(6);  // NOLINT(cert-msc51-cpp): the same every time
  std::vector<float> angles(kCount);
  for (float& angle : angles) {
    do {
      angle = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    } while (!std::isfinite(angle));
  }
  angles[0] = 0x1.fffffep127F;
  angles[1] = 0x1.fffffep-127F;
  EXPECT_LE(worst_error(angles), 0.83);
}

TEST(RopeSincos, IsRightNearMultiplesOfAQuarterTurn) {
  std::vector<float> angles(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    angles[i] = static_cast<float>(static_cast<double>(i) * 41 * std::numbers::pi / 2);
  }
  EXPECT_LE(worst_error(angles), 0.83);
  // The float that comes nearest to one.
  EXPECT_LE(worst_error(std::vector<float>(256, std::ldexp(16367173.0F, 72))), 0.83);
}

TEST(RopeSincos, OfInfinityAndNaNIsNaNAndDisturbsNoNeighbour) {
  std::vector<float> angles(256, 1.0F);
  angles[8] = test::kInfinity;
  angles[9] = 1e30F;
  angles[17] = -test::kInfinity;
  angles[18] = test::kNaN;
  const std::vector<double> got = computed(angles);
  for (std::size_t i = 0; i < angles.size(); ++i) {
    const bool finite = std::isfinite(angles[i]);
    EXPECT_EQ(std::isfinite(got[2 * i]), finite) << i;
    EXPECT_EQ(std::isfinite(got[2 * i + 1]), finite) << i;
    if (finite) {
      EXPECT_NEAR(got[2 * i], std::cos(static_cast<double>(angles[i])), 0x1p-24) << i;
    }
  }
}

}  // namespace
}  // namespace kiln::rope_test
