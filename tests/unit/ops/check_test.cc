// What is checked of an operation's arguments, where every_operation_test.cc does not
// see it.

#include "ops/check.h"

#include <array>

#include "tests/unit/ops/refusals.h"

namespace kiln::ops {
namespace {

const std::array<float, 64> kMemory{};
const float* at(std::size_t element) {
  return kMemory.data() + element;
}

TEST(ElementCount, IsTheProductAndZeroWhereOneIs) {
  EXPECT_EQ(element_count({{"a", 3}, {"b", 5}}).value(), 15);
  EXPECT_EQ(element_count({{"a", std::int64_t{1} << 50}, {"b", 0}}).value(), 0);
  EXPECT_EQ(element_count({}).value(), 1);
}

TEST(ElementCount, RefusesWhatIsNegativeAndWhatOverflows) {
  EXPECT_EQ(refusal(element_count({{"a", 0}, {"b", -1}})), "b is -1");
  EXPECT_THAT(refusal(element_count(
                  {{"a", std::int64_t{1} << 40}, {"b", std::int64_t{1} << 40}})),
              HasSubstr("2^60 elements or more, up to b = "));
}

/// Of 4-byte elements.
Argument output(std::string_view name, const void* begin, std::int64_t elements) {
  return writes(name, begin, {elements, 4});
}
Argument input(std::string_view name, const void* begin, std::int64_t elements) {
  return reads(name, begin, {elements, 4});
}

Result<void> check(std::initializer_list<Argument> arguments) {
  return check_memory({std::span(arguments.begin(), arguments.size())},
                      Pointers::kChecked);
}

TEST(CheckMemory, TakesNeighboursAndWhatIsEmpty) {
  EXPECT_TRUE(check({output("y", at(0), 4), input("x", at(4), 4)}));
  EXPECT_TRUE(check({output("y", nullptr, 0), input("x", nullptr, 0)}));
  EXPECT_TRUE(check({output("y", at(1), 0), input("x", at(0), 4)}));
}

TEST(CheckMemory, RefusesAnOutputThatOverlapsAnInputByAByte) {
  const auto* const bytes = reinterpret_cast<const char*>(at(0));
  const Argument x = reads("x", bytes + 8, {4, 1});
  const std::string refused = "y overlaps x: it works out of place";
  EXPECT_EQ(refusal(check({writes("y", bytes, {9, 1}), x})), refused);
  EXPECT_EQ(refusal(check({writes("y", bytes + 11, {9, 1}), x})), refused);
}

TEST(CheckMemory, RefusesTwoOutputsThatOverlapUnlessTheyAreInterleaved) {
  const std::array both{output("y", at(0), 2), output("z", at(1), 2)};
  EXPECT_EQ(refusal(check_memory({both}, Pointers::kChecked)), "z overlaps y");
  EXPECT_TRUE(check_memory({both}, Pointers::kChecked, Outputs::kInterleaved));
}

}  // namespace
}  // namespace kiln::ops
