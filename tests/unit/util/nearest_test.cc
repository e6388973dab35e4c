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

TEST(Nearest, DashesMakeNoOptionAlike) {
  const std::vector<std::string> options{"--seed", "--arch", "--jobs"};
  EXPECT_EQ(nearest("--std", options), std::nullopt);
  EXPECT_EQ(nearest("-arch", options), "--arch");
  EXPECT_EQ(nearest("--job", options), "--jobs");
  EXPECT_EQ(nearest("--", options), std::nullopt);
  EXPECT_EQ(nearest("-", options), std::nullopt);
}

TEST(Nearest, AShortWordThatBeginsOtherwiseIsAnotherWord) {
  const std::vector<std::string> names{"rope", "warm"};
  EXPECT_EQ(nearest("nope", names), std::nullopt);
  EXPECT_EQ(nearest("farm", names), std::nullopt);
  EXPECT_EQ(nearest("ropa", names), "rope");
  EXPECT_EQ(nearest("orpe", names), "rope");
  EXPECT_EQ(nearest("ope", names), "rope");
  EXPECT_EQ(nearest("arope", names), "rope");
}

TEST(Nearest, AHugeWordCostsNothing) {
  EXPECT_EQ(nearest(std::string(1 << 20, 'x'), words()), std::nullopt);
}

TEST(DidYouMean, IsPartOfASentenceOrNothing) {
  EXPECT_EQ(did_you_mean("dtyp", words()), ", did you mean 'dtype'?");
  EXPECT_EQ(did_you_mean("verify", words()), "");
  const std::vector<std::string> kernels{"rmsnorm_fwd", "rmsnorm_bwd", "layernorm_fwd"};
  EXPECT_EQ(did_you_mean("rms_norm", kernels),
            ", did you mean 'rmsnorm_fwd' or 'rmsnorm_bwd'?");
}

TEST(DidYouMean, TakesAShortFormForWhatItIsShortFor) {
  const std::vector<std::string> names{"h100-pcie", "h100-sxm", "h200", "llama-3-8b"};
  EXPECT_EQ(did_you_mean("h100", names), ", did you mean 'h100-pcie' or 'h100-sxm'?");
  EXPECT_EQ(did_you_mean("lama", names), ", did you mean 'llama-3-8b'?");
  EXPECT_EQ(did_you_mean("h20", names), ", did you mean 'h200'?");
  const std::vector<std::string> many{"abc1", "abc2", "abc3", "abc4", "abc5"};
  EXPECT_EQ(did_you_mean("abc", many), ", did you mean 'abc1'?") << "not all of them";
}

}  // namespace
}  // namespace kiln
