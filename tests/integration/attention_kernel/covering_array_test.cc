#include "tests/integration/attention_kernel/covering_array.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace kiln::attention_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

bool everything(const Row& /*row*/) {
  return true;
}

bool has(const Row& row, const Pair& pair) {
  return row[pair.axis] == pair.value && row[pair.other_axis] == pair.other_value;
}

std::vector<Pair> pairs_of(const std::vector<std::size_t>& sizes) {
  std::vector<Pair> pairs;
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    for (std::size_t b = a + 1; b < sizes.size(); ++b) {
      for (std::size_t i = 0; i < sizes[a]; ++i) {
        for (std::size_t j = 0; j < sizes[b]; ++j) pairs.push_back({a, i, b, j});
      }
    }
  }
  return pairs;
}

TEST(CoveringArray, HasEveryPairInFewRows) {
  const std::vector<std::size_t> sizes{5, 6, 3, 1, 2, 4};
  const CoveringArray array = covering_array(sizes, 0, everything);
  EXPECT_THAT(array.impossible, IsEmpty());
  for (const Pair& pair : pairs_of(sizes))
    EXPECT_TRUE(std::ranges::any_of(array.rows,
                                    [&](const Row& row) { return has(row, pair); }));
  EXPECT_LT(array.rows.size(), 40U);  // of 720; 30 have two of the axes alone
}

TEST(CoveringArray, CrossesTheFirstAxes) {
  const CoveringArray array = covering_array({3, 2, 4, 2}, 3, everything);
  std::set<Row> crossed;
  for (const Row& row : array.rows) crossed.insert({row[0], row[1], row[2]});
  EXPECT_EQ(crossed.size(), 3U * 2U * 4U);
  EXPECT_EQ(array.rows.size(), 3U * 2U * 4U);
}

TEST(CoveringArray, NamesThePairsThatNoAllowedRowHasAndHasAllOthers) {
  const std::vector<std::size_t> sizes{2, 3, 3};
  // The first two axes as a pair, and more by what the third leaves.
  const auto is_allowed = [](const Row& row) {
    return !(row[0] == 1 && row[1] == 2) && !(row[1] == 0 && row[2] != 1);
  };
  for (const std::size_t crossed : {0U, 1U, 2U}) {
    const CoveringArray array = covering_array(sizes, crossed, is_allowed);
    EXPECT_THAT(array.impossible,
                ElementsAre(Pair{0, 1, 1, 2}, Pair{1, 0, 2, 0}, Pair{1, 0, 2, 2}));
    EXPECT_TRUE(std::ranges::all_of(array.rows, is_allowed));
    for (const Pair& pair : pairs_of(sizes)) {
      const bool is_there = std::ranges::any_of(
          array.rows, [&](const Row& row) { return has(row, pair); });
      EXPECT_NE(is_there, std::ranges::count(array.impossible, pair) > 0);
    }
  }
}

TEST(CoveringArray, IsTheSameEveryTime) {
  const std::vector<std::size_t> sizes{4, 3, 3, 2};
  EXPECT_EQ(covering_array(sizes, 2, everything).rows,
            covering_array(sizes, 2, everything).rows);
}

TEST(CoveringArray, IsEmptyWhereNothingIsAllowed) {
  const CoveringArray array =
      covering_array({2, 2}, 1, [](const Row& /*row*/) { return false; });
  EXPECT_THAT(array.rows, IsEmpty());
  EXPECT_EQ(array.impossible.size(), 4U);
}

}  // namespace
}  // namespace kiln::attention_test
