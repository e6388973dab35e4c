#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "tools/bench/cases.h"

namespace kiln::tools {
namespace {

const std::vector<BenchCase>& cases() {
  static const std::vector<BenchCase> all =
      bench_cases({.capability = {9, 0}, .multiprocessors = 132});
  return all;
}

double goal_of(const std::string& operation, const std::string& what,
               ops::DType dtype) {
  const auto found =
      std::find_if(cases().begin(), cases().end(), [&](const BenchCase& each) {
        return each.operation == operation && each.what == what && each.dtype == dtype;
      });
  const auto* const moved =
      found == cases().end() ? nullptr : std::get_if<BytesMoved>(&found->work);
  return moved == nullptr ? 0 : moved->goal;
}

TEST(BenchCasesTest, AttentionsGoalsAreThoseOfTheDevicesThatTheyWereMeasuredOn) {
  const auto goals = [](ComputeCapability capability) {
    std::set<double> all;
    for (const BenchCase& each :
         bench_cases({.capability = capability, .multiprocessors = 100})) {
      if (const auto* const work = std::get_if<Arithmetic>(&each.work))
        all.insert(work->goal_tflops);
    }
    return all;
  };
  EXPECT_EQ(goals({8, 0}), (std::set<double>{0, 90, 150}));
  EXPECT_EQ(goals({9, 0}), (std::set<double>{0, 144, 240}));
  EXPECT_EQ(goals({8, 6}), std::set<double>{0});
}

TEST(BenchCasesTest, NoTwoOfABackendHaveTheSameName) {
  std::set<std::tuple<std::string, std::string, ops::DType, std::string>> names;
  for (const BenchCase& each : cases())
    EXPECT_TRUE(
        names.emplace(each.operation, each.what, each.dtype, each.backend).second)
        << each.operation << ' ' << each.what;
}

TEST(BenchCasesTest, EachCaseOfAttentionHasTheSameWorkOfCudnnBehindIt) {
  int pairs = 0;
  for (std::size_t i = 0; i + 1 < cases().size(); ++i) {
    const BenchCase& own = cases()[i];
    const BenchCase& other = cases()[i + 1];
    if (!own.operation.starts_with("attention_") || own.backend != "kiln")
      continue;
    EXPECT_EQ(other.backend, "cudnn");
    EXPECT_EQ(std::tie(other.operation, other.what, other.dtype),
              std::tie(own.operation, own.what, own.dtype));
    EXPECT_EQ(std::get<Arithmetic>(other.work).flops,
              std::get<Arithmetic>(own.work).flops);
    EXPECT_EQ(std::get<Arithmetic>(other.work).goal_tflops, 0) << "no goal of ours";
    EXPECT_EQ(other.tensors.size() + 1, own.tensors.size()) << "all but a workspace";
    ++pairs;
  }
  EXPECT_GT(pairs, 60);
}

TEST(BenchCasesTest, EveryOperationIsThereInEveryType) {
  std::set<std::string> operations;
  std::set<std::pair<std::string, ops::DType>> typed;
  for (const BenchCase& each : cases()) {
    operations.insert(each.operation);
    typed.emplace(each.operation, each.dtype);
  }
  EXPECT_EQ(typed.size(), 3 * operations.size());
}

// Worked out by hand from templates/: of the bytes that count, 3 of a row for gradients
// and 2 or 4 forward, and those that are moved besides.
TEST(BenchCasesTest, AGoalLeavesRoomForWhatTheDesignMovesTwice) {
  using enum ops::DType;
  const std::string norm = "1024 x 65536";
  EXPECT_NEAR(goal_of("layernorm_backward", norm, kBf16), 0.85 * 3 / 5.156, 0.001);
  EXPECT_NEAR(goal_of("layernorm_backward", norm, kF32), 0.85 * 3 / 5.630, 0.001);
  EXPECT_NEAR(goal_of("rmsnorm_backward", norm, kBf16), 0.85 * 3 / 3.25, 0.001);
  EXPECT_NEAR(goal_of("rmsnorm_backward", norm, kF32), 0.85 * 3 / 4.979, 0.001);
  EXPECT_NEAR(goal_of("layernorm_forward", norm, kBf16), 0.9, 0.001);
  EXPECT_NEAR(goal_of("layernorm_forward", norm, kF32), 0.9 * 2 / 2.242, 0.001);
  EXPECT_NEAR(goal_of("rmsnorm_forward", "residual, " + norm, kF32), 0.9 * 4 / 4.495,
              0.001);
  EXPECT_NEAR(goal_of("layernorm_backward", "8192 x 8192", kF32), 0.85, 0.001);
  const std::string loss = "loss and gradient, 8192 x 128256";
  EXPECT_NEAR(goal_of("cross_entropy", loss, kBf16), 0.85, 0.001);
  EXPECT_NEAR(goal_of("cross_entropy", loss, kF32), 0.85 * 2 / 2.098, 0.001);
}

}  // namespace
}  // namespace kiln::tools
