#include "ops/check.h"

#include <array>

#include "tests/unit/ops/refusals.h"

namespace kiln::ops {
namespace {

using testing::HasSubstr;

const std::array<float, 64> kMemory{};
const float* at(std::size_t element) {
  return kMemory.data() + element;
}

TEST(ElementCount, IsTheProductAndZeroWhereOneIs) {
  EXPECT_EQ(element_count("op", {{"a", 3}, {"b", 5}}).value(), 15);
  EXPECT_EQ(element_count("op", {{"a", std::int64_t{1} << 50}, {"b", 0}}).value(), 0);
  EXPECT_EQ(element_count("op", {}).value(), 1);
}

TEST(ElementCount, RefusesWhatIsNegativeAndWhatOverflows) {
  EXPECT_EQ(refusal(element_count("op", {{"a", 0}, {"b", -1}})), "op: b is -1");
  EXPECT_THAT(refusal(element_count(
                  "op", {{"a", std::int64_t{1} << 40}, {"b", std::int64_t{1} << 40}})),
              HasSubstr("op: 2^60 elements or more, up to b = "));
}

TEST(CheckMemory, TakesNeighboursAndWhatIsEmpty) {
  EXPECT_TRUE(check_memory("op", {{"y", at(0), 16, 4}}, {{"x", at(4), 16, 4}}));
  EXPECT_TRUE(check_memory("op", {{"y", nullptr, 0, 4}}, {{"x", nullptr, 0, 4}}));
  EXPECT_TRUE(check_memory("op", {{"y", at(1), 0, 4}}, {{"x", at(0), 16, 4}}));
}

TEST(CheckMemory, LetsInputsOverlap) {
  EXPECT_TRUE(check_memory("op", {{"y", at(8), 16, 4}},
                           {{"a", at(0), 16, 4}, {"b", at(2), 16, 4}}));
}

TEST(CheckMemory, RefusesAnOutputThatOverlapsAnInputByAByte) {
  const auto* const bytes = reinterpret_cast<const char*>(at(0));
  EXPECT_EQ(refusal(check_memory("op", {{"y", bytes, 9, 1}}, {{"x", bytes + 8, 4, 1}})),
            "op: y overlaps x: it works out of place");
  EXPECT_EQ(
      refusal(check_memory("op", {{"y", bytes + 11, 9, 1}}, {{"x", bytes + 8, 4, 1}})),
      "op: y overlaps x: it works out of place");
}

TEST(CheckMemory, RefusesTwoOutputsThatOverlap) {
  EXPECT_EQ(refusal(check_memory("op", {{"y", at(0), 8, 4}, {"z", at(1), 8, 4}}, {})),
            "op: z overlaps y");
}

TEST(CheckMemory, RefusesNullAndAnAddressBetweenElements) {
  EXPECT_EQ(refusal(check_memory("op", {}, {{"x", nullptr, 1, 4}})), "op: x is null");
  const auto* const odd = reinterpret_cast<const char*>(at(0)) + 2;
  EXPECT_THAT(refusal(check_memory("op", {{"y", odd, 4, 4}}, {})),
              AllOf(HasSubstr("op: y is at 0x"),
                    HasSubstr("no multiple of an element's 4 bytes")));
}

TEST(CheckDtype, TakesThreeAndRefusesWhatWasNotSet) {
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32})
    EXPECT_TRUE(check_dtype("op", dtype)) << to_string(dtype);
  EXPECT_THAT(refusal(check_dtype("op", DType::kUnset)), HasSubstr("dtype is not set"));
  EXPECT_THAT(refusal(check_dtype("op", static_cast<DType>(77))),
              HasSubstr("dtype is not set"));
}

}  // namespace
}  // namespace kiln::ops
