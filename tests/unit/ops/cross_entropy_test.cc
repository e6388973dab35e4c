// What the cross-entropy operations refuse, and what they choose.

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/plans.h"
#include "tests/unit/ops/refusals.h"

namespace kiln::ops::cross_entropy_checks {
namespace {

using testing::HasSubstr;

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

TYPED_TEST(CrossEntropyPlan, RefusesWhatWasNotSet) {
  EXPECT_THAT(refusal(plan(TypeParam{}, kDevice)), HasSubstr("dtype is not set"));
  auto args = valid<TypeParam>();
  args.vocabulary = 0;
  EXPECT_THAT(refusal(plan(args, kDevice)), HasSubstr("vocabulary is 0: 1 at least"));
}

TYPED_TEST(CrossEntropyPlan, RefusesNegativeSizesByName) {
  auto args = valid<TypeParam>();
  args.rows = -3;
  EXPECT_THAT(refusal(plan(args, kDevice)), HasSubstr(": rows is -3"));
  args = valid<TypeParam>();
  args.vocabulary = -1;
  EXPECT_THAT(refusal(plan(args, kDevice)), HasSubstr(": vocabulary is -1"));
  args = valid<TypeParam>();
  args.logits_stride = -10;
  EXPECT_THAT(refusal(plan(args, kDevice)), HasSubstr("logits_stride is -10"));
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
  args.logits_stride = 9;
  EXPECT_THAT(refusal(plan(args, kDevice)),
              HasSubstr("logits_stride is 9, less than a row's 10"));
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

TYPED_TEST(CrossEntropyPlan, RefusesATargetTypeThatIsNone) {
  auto args = valid<TypeParam>();
  args.target_type = static_cast<TargetType>(7);
  EXPECT_THAT(refusal(plan(args, kDevice)), HasSubstr("target_type is none of"));
}

TYPED_TEST(CrossEntropyPlan, LaunchesNothingWithoutRows) {
  auto args = valid<TypeParam>();
  args.rows = 0;
  EXPECT_TRUE(plan(args, kDevice).value().empty());
  EXPECT_TRUE(check_pointers(args));
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

class CrossEntropyPointers : public testing::Test {
 protected:
  CrossEntropyPointers() {
    args_ = valid<CrossEntropy>();
    args_.logits = logits_.data();
    args_.dlogits = dlogits_.data();
    args_.targets = targets_.data();
    args_.loss = loss_.data();
  }

  // NOLINTBEGIN(cppcoreguidelines-non-private-member-variables-in-classes)
  std::array<std::uint16_t, 64> logits_{};
  std::array<std::uint16_t, 64> dlogits_{};
  std::array<std::int64_t, 3> targets_{};
  std::array<float, 6> loss_{};
  std::array<float, 6> saved_{};
  CrossEntropy args_;
  // NOLINTEND(cppcoreguidelines-non-private-member-variables-in-classes)
};

TEST_F(CrossEntropyPointers, MayBeNullWhereTheHeaderSaysSo) {
  EXPECT_TRUE(check_pointers(args_));
  CrossEntropy args = args_;
  args.loss = nullptr;
  EXPECT_EQ(refusal(check_pointers(args)), "cross_entropy: loss is null");
  args = args_;
  args.dlogits = nullptr;
  EXPECT_EQ(refusal(check_pointers(args)), "cross_entropy: dlogits is null");
  args = args_;
  args.logits = nullptr;
  EXPECT_EQ(refusal(check_pointers(args)), "cross_entropy: logits is null");
  args = args_;
  args.targets = nullptr;
  EXPECT_EQ(refusal(check_pointers(args)), "cross_entropy: targets is null");

  auto forward = valid<CrossEntropyForward>();
  forward.loss = loss_.data();
  forward.logits = logits_.data();
  forward.targets = targets_.data();
  EXPECT_TRUE(check_pointers(forward));
  auto backward = valid<CrossEntropyBackward>();
  backward.dlogits = dlogits_.data();
  backward.logits = logits_.data();
  backward.targets = targets_.data();
  EXPECT_EQ(refusal(check_pointers(backward)), "cross_entropy_backward: saved is null");
  backward.saved = saved_.data();
  EXPECT_TRUE(check_pointers(backward));
}

// Guards against a gradient that is written over the logits while other threads of the
// row still read them.
TEST_F(CrossEntropyPointers, AreRefusedWhereTheGradientLiesOverTheLogits) {
  args_.dlogits = logits_.data();
  EXPECT_EQ(refusal(check_pointers(args_)),
            "cross_entropy: dlogits overlaps logits: it works out of place");
  auto backward = valid<CrossEntropyBackward>();
  backward.saved = saved_.data();
  backward.targets = targets_.data();
  backward.logits = logits_.data();
  backward.dlogits = logits_.data() + 29;
  EXPECT_THAT(refusal(check_pointers(backward)), HasSubstr("dlogits overlaps logits"));
  backward.dlogits = logits_.data() + 30;
  EXPECT_TRUE(check_pointers(backward));
  backward.logits_stride = 11;
  EXPECT_THAT(refusal(check_pointers(backward)), HasSubstr("dlogits overlaps logits"));
}

TEST_F(CrossEntropyPointers, AreRefusedWhereOutputsOverlap) {
  args_.lse = loss_.data() + 2;
  EXPECT_EQ(refusal(check_pointers(args_)), "cross_entropy: lse overlaps loss");
  args_.lse = loss_.data() + 3;
  EXPECT_TRUE(check_pointers(args_));
  auto forward = valid<CrossEntropyForward>();
  forward.logits = logits_.data();
  forward.targets = targets_.data();
  forward.loss = saved_.data() + 5;
  forward.saved = saved_.data();
  EXPECT_EQ(refusal(check_pointers(forward)),
            "cross_entropy_forward: saved overlaps loss");
}

TEST_F(CrossEntropyPointers, AreRefusedBetweenElementsOfTheirOwnType) {
  args_.targets = reinterpret_cast<const char*>(targets_.data()) + 4;
  args_.rows = 2;
  EXPECT_THAT(refusal(check_pointers(args_)),
              AllOf(HasSubstr("targets is at "), HasSubstr("an element's 8 bytes")));
  args_.target_type = TargetType::kInt32;
  EXPECT_TRUE(check_pointers(args_));
  args_.logits = reinterpret_cast<const char*>(logits_.data()) + 1;
  EXPECT_THAT(refusal(check_pointers(args_)),
              AllOf(HasSubstr("logits is at "), HasSubstr("an element's 2 bytes")));
}

}  // namespace
}  // namespace kiln::ops::cross_entropy_checks
