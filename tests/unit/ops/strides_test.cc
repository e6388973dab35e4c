#include "ops/strides.h"

#include <array>

#include "tests/unit/ops/refusals.h"

namespace kiln::ops {
namespace {

template <std::size_t kCount>
using Dimensions = std::array<Dimension, kCount>;

TEST(SpanOf, IsFromTheFirstElementToTheLast) {
  EXPECT_EQ(span_of("x", Dimensions<2>{{{"a", 3, 10}, {"b", 4, 1}}}).value(), 24);
  EXPECT_EQ(span_of("x", Dimensions<2>{{{"a", 3, 0}, {"b", 4, 1}}}).value(), 4);
  EXPECT_EQ(span_of("x", {}).value(), 1);
}

TEST(SpanOf, IsZeroOfNothingAndLooksAtNoStrideOfOne) {
  EXPECT_EQ(span_of("x", Dimensions<2>{{{"a", 3, 10}, {"b", 0, 1}}}).value(), 0);
  EXPECT_EQ(span_of("x", Dimensions<2>{{{"a", 1, -9}, {"b", 4, 1}}}).value(), 4);
}

TEST(SpanOf, RefusesWhatIsNegativeAndWhatOverflows) {
  EXPECT_EQ(refusal(span_of("x", Dimensions<1>{{{"a", 2, -1}}})),
            "x: the stride of a is -1: it is 0 or more");
  EXPECT_THAT(refusal(span_of(
                  "x", Dimensions<2>{{{"a", 3, std::int64_t{1} << 59}, {"b", 2, 1}}})),
              HasSubstr("x reaches over 2^60 elements or more, up to 3 times"));
}

TEST(CheckApart, TakesAnyOrderOfDimensionsAndGaps) {
  EXPECT_TRUE(check_apart("y", Dimensions<2>{{{"a", 3, 4}, {"b", 4, 1}}}));
  EXPECT_TRUE(check_apart("y", Dimensions<2>{{{"a", 3, 1}, {"b", 4, 3}}}));
  EXPECT_TRUE(check_apart("y", Dimensions<2>{{{"a", 3, 9}, {"b", 4, 2}}}));
  EXPECT_TRUE(check_apart("y", Dimensions<2>{{{"a", 1, 0}, {"b", 4, 1}}}));
}

TEST(CheckApart, RefusesTwoElementsAtOnePlace) {
  EXPECT_EQ(
      refusal(check_apart("y", Dimensions<2>{{{"a", 3, 3}, {"b", 4, 1}}})),
      "y: two elements would share an address: the stride of a is 3, but the inner "
      "dimensions span 4 elements");
  EXPECT_THAT(refusal(check_apart("y", Dimensions<1>{{{"a", 2, 0}}})),
              HasSubstr("the stride of a is 0"));
}

}  // namespace
}  // namespace kiln::ops
