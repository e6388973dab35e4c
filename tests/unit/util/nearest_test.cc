#include "util/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace kiln {
namespace {

const std::vector<std::string>& words() {
  static const std::vector<std::string> all{"dtype", "max_cols", "rows", "warm", "why"};
  return all;
}

TEST(Nearest, OneEditOfAnyKindFindsTheWord) {
  for (const char* typo : {"dtyp", "dtypee", "dtypo", "dytpe"})
    EXPECT_EQ(nearest(typo, words()), "dtype") << typo;
}

TEST(Nearest, LongerWordsMayDifferMore) {
  EXPECT_EQ(nearest("max_colum", words()), "max_cols");
  EXPECT_EQ(nearest("maximum", words()), std::nullopt);
}

TEST(Nearest, FindsNothingForAStranger) {
  EXPECT_EQ(nearest("verify", words()), std::nullopt);
  EXPECT_EQ(nearest("", words()), std::nullopt);
  EXPECT_EQ(nearest("warm", {}), std::nullopt);
}

TEST(Nearest, TiesGoToTheFirst) {
  const std::vector<std::string> twins{"abcd", "abce"};
  EXPECT_EQ(nearest("abcf", twins), "abcd");
}

TEST(Nearest, EvenAShortWordMayHaveOneTypo) {
  EXPECT_EQ(nearest("wy", words()), "why");
}

TEST(Nearest, AHugeWordCostsNothing) {
  EXPECT_EQ(nearest(std::string(1 << 20, 'x'), words()), std::nullopt);
}

TEST(DidYouMean, IsPartOfASentenceOrNothing) {
  EXPECT_EQ(did_you_mean("dtyp", words()), ", did you mean 'dtype'?");
  EXPECT_EQ(did_you_mean("verify", words()), "");
}

}  // namespace
}  // namespace kiln
