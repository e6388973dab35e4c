// Which tensors a run of a plan has to bring along, for what a problem asks for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/plan_service/plan_service_fixture.h"

namespace kiln {
namespace {

using attention::Problem;
using attention::TensorRole;
using Roles = std::vector<TensorRole>;

class PlanTensorsTest : public test::PlanServiceFixture {
 protected:
  /// Those of the plan, in ascending order.
  Roles tensors_of(const std::function<void(Problem&)>& change) {
    const auto object =
        object_of(here_.plans->fetch(key(test::attention_problem(change), h200_)));
    if (object == nullptr)
      return {};
    const auto plan = attention::decode_plan(object->payload());
    EXPECT_TRUE(plan) << plan.error().message;
    EXPECT_TRUE(std::ranges::is_sorted(plan->tensors));
    EXPECT_TRUE(check_fully(*plan));
    return plan->tensors;
  }
};

const Roles kForward{TensorRole::kQ, TensorRole::kK, TensorRole::kV, TensorRole::kO,
                     TensorRole::kScale};

Roles and_also(Roles roles, const Roles& more) {
  roles.insert(roles.end(), more.begin(), more.end());
  std::ranges::sort(roles);
  return roles;
}

TEST_F(PlanTensorsTest, AForwardPassNeedsItsTensorsAndTheScale) {
  EXPECT_EQ(tensors_of({}), and_also(kForward, {}));
  EXPECT_EQ(tensors_of([](Problem& each) { each.training = true; }),
            and_also(kForward, {TensorRole::kStats}));
}

TEST_F(PlanTensorsTest, PaddingNeedsTheTrueLengths) {
  EXPECT_EQ(
      tensors_of([](Problem& each) { each.mask = attention::Mask::kPaddingCausal; }),
      and_also(kForward, {TensorRole::kLengthsQ, TensorRole::kLengthsKv}));
}

TEST_F(PlanTensorsTest, PackedSequencesNeedLengthsAndOffsets) {
  EXPECT_EQ(tensors_of([](Problem& each) {
              each.layout = attention::Layout::kThd;
              each.mask = attention::Mask::kPadding;
            }),
            and_also(kForward, {TensorRole::kLengthsQ, TensorRole::kLengthsKv,
                                TensorRole::kOffsetsQ, TensorRole::kOffsetsK,
                                TensorRole::kOffsetsV, TensorRole::kOffsetsO}));
}

TEST_F(PlanTensorsTest, ABiasIsATensorAndAlibiIsNone) {
  EXPECT_EQ(
      tensors_of([](Problem& each) { each.bias_kind = attention::Bias::kPostScale; }),
      and_also(kForward, {TensorRole::kBias}));
  EXPECT_EQ(tensors_of([](Problem& each) {
              each.bias_kind = attention::Bias::kAlibi;
              each.mask = attention::Mask::kCausal;
            }),
            and_also(kForward, {}));
}

TEST_F(PlanTensorsTest, DropoutNeedsASeedAndAnOffset) {
  EXPECT_EQ(tensors_of([](Problem& each) {
              each.dropout = 0.1;
              each.training = true;
            }),
            and_also(kForward, {TensorRole::kStats, TensorRole::kDropoutSeed,
                                TensorRole::kDropoutOffset}));
}

TEST_F(PlanTensorsTest, ABackwardPassNeedsTheForwardPassAndTheGradients) {
  const Roles backward =
      and_also(kForward, {TensorRole::kStats, TensorRole::kGradO, TensorRole::kGradQ,
                          TensorRole::kGradK, TensorRole::kGradV});
  const auto of = [](const std::function<void(Problem&)>& more) {
    return [more](Problem& problem) {
      problem.pass = attention::Pass::kBackward;
      problem.training = problem.stats = true;
      more(problem);
    };
  };
  EXPECT_EQ(tensors_of(of([](Problem&) {})), backward);
  EXPECT_EQ(tensors_of(of([](Problem& each) {
              each.bias_kind = attention::Bias::kPostScale;
              each.bias_gradient = true;
            })),
            and_also(backward, {TensorRole::kBias, TensorRole::kGradBias}));
  EXPECT_EQ(tensors_of(of([](Problem& each) {
              each.layout = attention::Layout::kThd;
              each.mask = attention::Mask::kPaddingCausal;
              each.dropout = 0.5;
            })),
            and_also(backward, {TensorRole::kLengthsQ, TensorRole::kLengthsKv,
                                TensorRole::kOffsetsQ, TensorRole::kOffsetsK,
                                TensorRole::kOffsetsV, TensorRole::kOffsetsO,
                                TensorRole::kDropoutSeed, TensorRole::kDropoutOffset}));
}

}  // namespace
}  // namespace kiln
