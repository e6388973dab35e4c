// What the norm operations refuse, and what they choose.

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ops/plans.h"
#include "tests/unit/ops/refusals.h"

namespace kiln::ops::norm_checks {
namespace {

const Device kDevice{.name = "planned", .capability = {9, 0}, .multiprocessors = 132};

LayerNormForward layer_forward() {
  return {.dtype = DType::kBf16, .rows = 6, .cols = 40};
}
LayerNormBackward layer_backward() {
  return {.dtype = DType::kBf16, .rows = 6, .cols = 40};
}
RmsNormForward rms_forward() {
  return {.dtype = DType::kBf16, .rows = 6, .cols = 40};
}
RmsNormBackward rms_backward() {
  return {.dtype = DType::kBf16, .rows = 6, .cols = 40};
}

TEST(NormPlan, RefusesWeightsOfAnotherSixteenBitType) {
  LayerNormForward args = layer_forward();
  args.weight_dtype = DType::kF16;
  EXPECT_EQ(refusal(plan(args, kDevice)),
            "layernorm_forward: weight_dtype is f16: bf16 or f32");
  args.weight_dtype = DType::kF32;
  EXPECT_EQ(plan(args, kDevice).value().at(0).parameters.at("weight_dtype"), "f32");
  args.dtype = DType::kF32;
  EXPECT_EQ(plan(args, kDevice).value().at(0).parameters.at("weight_dtype"), "same");
}

TEST(NormPlan, RefusesAnEpsBelowZero) {
  RmsNormForward args = rms_forward();
  args.eps = -1;
  EXPECT_EQ(refusal(plan(args, kDevice)), "rmsnorm_forward: eps is -1");
  args.eps = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal(plan(args, kDevice)), HasSubstr("eps is nan"));
}

TEST(NormPlan, TakesTheSmallestClassThatHoldsTheRows) {
  RmsNormForward args = rms_forward();
  for (const auto& [cols, expected] : {std::pair{1, "128"},
                                       {128, "128"},
                                       {129, "512"},
                                       {513, "8192"},
                                       {8192, "8192"},
                                       {8193, "any"}}) {
    args.cols = cols;
    EXPECT_EQ(plan(args, kDevice).value().at(0).parameters.at("max_cols"), expected)
        << cols;
  }
}

TEST(NormPlan, RoundsInBetweenForLlamaWhereThereIsARounding) {
  RmsNormForward args = rms_forward();
  args.casting = RmsNormCasting::kLlama;
  EXPECT_EQ(plan(args, kDevice).value().at(0).parameters.at("llama"), "true");
  args.dtype = DType::kF32;
  EXPECT_EQ(plan(args, kDevice).value().at(0).parameters.at("llama"), "false");
  args.dtype = DType::kBf16;
  args.casting = RmsNormCasting::kGemma;
  EXPECT_EQ(plan(args, kDevice).value().at(0).parameters.at("llama"), "false");
}

TEST(NormPlan, EndsABackwardPassWithTheSumOfAllBlocks) {
  const Launches launches = plan(layer_backward(), kDevice).value();
  ASSERT_EQ(launches.size(), 2U);
  EXPECT_EQ(launches[0].entry, "");
  EXPECT_EQ(launches[1].kernel, "layernorm_bwd");
  EXPECT_EQ(launches[1].entry, "layernorm_bwd_finalize");
}

TEST(NormPlan, LeavesOutTheSumWhereNobodyWantsIt) {
  RmsNormBackward args = rms_backward();
  args.has_dweight = false;
  EXPECT_EQ(plan(args, kDevice).value().size(), 1U);
  EXPECT_EQ(rmsnorm_backward_workspace_bytes(kDevice, args).value(), 0U);
}

TEST(NormPlan, WithoutAWeightSumsNothing) {
  RmsNormBackward args = rms_backward();
  args.has_weight = false;
  const Launches launches = plan(args, kDevice).value();
  ASSERT_EQ(launches.size(), 1U);
  EXPECT_EQ(launches[0].parameters.at("weight"), "false");
  EXPECT_EQ(rmsnorm_backward_workspace_bytes(kDevice, args).value(), 0U);
  args.rows = 0;
  EXPECT_TRUE(plan(args, kDevice).value().empty());
}

// So that there is one kernel for all of them.
TEST(NormPlan, WithoutAWeightNeitherItsTypeNorCastingMatters) {
  RmsNormForward args = rms_forward();
  args.has_weight = false;
  const Launch plain = plan(args, kDevice).value().at(0);
  args.weight_dtype = DType::kF32;
  args.casting = RmsNormCasting::kLlama;
  args.zero_centered_weight = true;
  const Launch same = plan(args, kDevice).value().at(0);
  EXPECT_EQ(plain.parameters, same.parameters);
  EXPECT_EQ(plain.arguments.names(), same.arguments.names());
}

TEST(NormPlan, RefusesABiasWithoutAWeight) {
  LayerNormForward args = layer_forward();
  args.has_weight = false;
  EXPECT_EQ(
      refusal(plan(args, kDevice)),
      "layernorm_forward: has_bias is true, and has_weight is false: a bias needs "
      "a weight");
  args.has_bias = false;
  EXPECT_TRUE(plan(args, kDevice));
}

TEST(NormPlan, WithoutRowsWritesZerosAndWithoutColumnsNothing) {
  LayerNormBackward args = layer_backward();
  args.rows = 0;
  const Launches launches = plan(args, kDevice).value();
  ASSERT_EQ(launches.size(), 1U);
  EXPECT_EQ(launches[0].entry, "layernorm_bwd_finalize");
  EXPECT_EQ(layernorm_backward_workspace_bytes(kDevice, args).value(), 0U);
  args.rows = 6;
  args.cols = 0;
  EXPECT_TRUE(plan(args, kDevice).value().empty());
  LayerNormForward forward = layer_forward();
  forward.rows = 0;
  EXPECT_TRUE(plan(forward, kDevice).value().empty());
}

TEST(NormWorkspace, IsARowOfSumsABlockAndBoundedByTheDevice) {
  RmsNormBackward args = rms_backward();
  args.cols = 4096;  // 256 threads: 2 blocks a multiprocessor
  args.rows = 3;
  EXPECT_EQ(rmsnorm_backward_workspace_bytes(kDevice, args).value(), 3U * 4096 * 4);
  args.rows = 600;  // four turns each leave no multiprocessor without a block
  EXPECT_EQ(rmsnorm_backward_workspace_bytes(kDevice, args).value(), 150U * 4096 * 4);
  args.rows = 100000;
  EXPECT_EQ(rmsnorm_backward_workspace_bytes(kDevice, args).value(),
            2U * 132 * 4096 * 4);
  LayerNormBackward with_bias = layer_backward();
  with_bias.cols = 4096;
  with_bias.rows = 100000;
  EXPECT_EQ(layernorm_backward_workspace_bytes(kDevice, with_bias).value(),
            2U * 2 * 132 * 4096 * 4);
}

TEST(NormPlan, SharesTheSumsOfAsManyColumnsAsTheDeviceHasRoomFor) {
  LayerNormBackward args = layer_backward();
  args.cols = 65536;
  const auto chunk = [&](ComputeCapability capability) {
    const Device device{.name = "planned", .capability = capability};
    return plan(args, device).value().at(0).extents.at("chunk");
  };
  EXPECT_EQ(chunk({9, 0}), 28672);
  EXPECT_EQ(chunk({8, 0}), 20480);
  EXPECT_EQ(chunk({8, 6}), 12288);
  EXPECT_EQ(chunk({12, 0}), 12288);
  EXPECT_EQ(chunk({7, 5}), 7168);
  EXPECT_EQ(chunk({13, 0}), 6144) << "what every device has";
  const Device present{.capability = {13, 0}, .shared_bytes_per_block = 227 << 10};
  EXPECT_EQ(plan(args, present).value().at(0).extents.at("chunk"), 28672);
  args.has_bias = false;
  EXPECT_EQ(chunk({9, 0}), 57344);
}

/// The values that the first launch gives its kernel.
template <typename Args>
std::vector<std::string> arguments_of(const Args& args) {
  Launches launches = plan(args, kDevice).value();
  std::vector<std::string> values;
  const auto addresses = launches.at(0).arguments.addresses();
  for (std::size_t i = 0; i < addresses.size(); ++i)
    values.emplace_back(static_cast<const char*>(addresses[i]),
                        launches[0].arguments.sizes_bytes()[i]);
  return values;
}

TEST(NormPlan, AddsOneToTheWeightOfGemmaInBothPasses) {
  RmsNormForward forward = rms_forward();
  RmsNormBackward backward = rms_backward();
  const auto plain = std::pair{arguments_of(forward), arguments_of(backward)};
  forward.zero_centered_weight = backward.zero_centered_weight = true;
  const auto centered = std::pair{arguments_of(forward), arguments_of(backward)};
  forward.zero_centered_weight = backward.zero_centered_weight = false;
  forward.casting = backward.casting = RmsNormCasting::kGemma;
  EXPECT_EQ(arguments_of(forward), centered.first);
  EXPECT_EQ(arguments_of(backward), centered.second);
  EXPECT_NE(plain.first, centered.first);
  EXPECT_NE(plain.second, centered.second);
}

}  // namespace
}  // namespace kiln::ops::norm_checks
