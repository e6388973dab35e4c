// What the cross-entropy operations refuse, and what they choose.

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "ops/plans.h"
#include "tests/unit/ops/refusals.h"

namespace kiln::ops::cross_entropy_checks {
namespace {

const Device kDevice{.name = "planned", .capability = {9, 0}};

template <typename Args>
Args valid() {
  Args args;
  args.dtype = DType::kBf16;
  args.rows = 3;
  args.vocabulary = 10;
  return args;
}

template <typename Args>
class CrossEntropyPlan : public testing::Test {};
using AllArgs = testing::Types<CrossEntropy, CrossEntropyForward, CrossEntropyBackward>;
TYPED_TEST_SUITE(CrossEntropyPlan, AllArgs);

TYPED_TEST(CrossEntropyPlan, RefusesAVocabularyOfNothing) {
  auto args = valid<TypeParam>();
  args.vocabulary = 0;
  EXPECT_THAT(refusal(plan(args, kDevice)), HasSubstr("vocabulary is 0: 1 at least"));
}

TYPED_TEST(CrossEntropyPlan, HasRowsAsLongAsThePaddedVocabulary) {
  auto args = valid<TypeParam>();
  args.padded_vocabulary = 16;
  Launches padded = plan(args, kDevice).value();
  args.logits_stride = 16;
  Launches strided = plan(args, kDevice).value();
  const auto values = padded.at(0).arguments.addresses();
  const auto same = strided.at(0).arguments.addresses();
  ASSERT_EQ(values.size(), same.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::memcmp(values[i], same[i], padded[0].arguments.sizes_bytes()[i]), 0);
  args.padded_vocabulary = 9;
  EXPECT_THAT(refusal(plan(args, kDevice)),
              HasSubstr("padded_vocabulary is 9, less than the vocabulary, 10"));
}

TYPED_TEST(CrossEntropyPlan, RefusesRowsThatRunIntoEachOtherOrCannotBeCounted) {
  auto args = valid<TypeParam>();
  for (const int wrong : {9, -10}) {
    args.logits_stride = wrong;
    EXPECT_THAT(
        refusal(plan(args, kDevice)),
        HasSubstr(fmt::format("logits_stride is {}, less than a row's 10", wrong)));
  }
  args.logits_stride = std::int64_t{1} << 60;
  EXPECT_THAT(refusal(plan(args, kDevice)),
              HasSubstr("2^60 elements or more, up to logits_stride"));
}

TYPED_TEST(CrossEntropyPlan, RefusesASmoothingOutsideOfZeroToOne) {
  auto args = valid<TypeParam>();
  for (const float wrong : {-0.1F, 1.5F, std::numeric_limits<float>::quiet_NaN()}) {
    args.smoothing = wrong;
    EXPECT_THAT(refusal(plan(args, kDevice)), HasSubstr("smoothing is ")) << wrong;
  }
  for (const float right : {0.0F, 0.1F, 1.0F}) {
    args.smoothing = right;
    EXPECT_TRUE(plan(args, kDevice)) << right;
  }
}

TEST(CrossEntropyPlans, NameTheKernelByPass) {
  const auto launch = [](const auto& args) {
    return plan(args, kDevice).value().at(0);
  };
  EXPECT_EQ(launch(valid<CrossEntropy>()).kernel, "cross_entropy_fwd");
  EXPECT_EQ(launch(valid<CrossEntropy>()).parameters,
            (Parameters{{"dtype", "bf16"}, {"gradient", "true"}}));
  EXPECT_EQ(launch(valid<CrossEntropyForward>()).kernel, "cross_entropy_fwd");
  EXPECT_EQ(launch(valid<CrossEntropyForward>()).parameters.at("gradient"), "false");
  EXPECT_EQ(launch(valid<CrossEntropyBackward>()).kernel, "cross_entropy_bwd");
  EXPECT_EQ(launch(valid<CrossEntropyBackward>()).parameters,
            (Parameters{{"dtype", "bf16"}}));
}

TEST(CrossEntropyPlans, RefusePaddingThatIsLessThanTheVocabulary) {
  auto args = valid<CrossEntropy>();
  args.padded_vocabulary = 9;
  EXPECT_EQ(refusal(plan(args, kDevice)),
            "cross_entropy: padded_vocabulary is 9, less than the vocabulary, 10");
  args.padded_vocabulary = -64;
  EXPECT_THAT(refusal(plan(args, kDevice)), HasSubstr("padded_vocabulary is -64"));
  args.padded_vocabulary = 16;
  EXPECT_TRUE(plan(args, kDevice));
  args.dlogits_stride = 12;
  EXPECT_EQ(refusal(plan(args, kDevice)),
            "cross_entropy: dlogits_stride is 12, less than a row's 16");
}

}  // namespace
}  // namespace kiln::ops::cross_entropy_checks
