// What of a program's name is in its results.

#include <gtest/gtest.h>

#include <string>

#include "build/artifact.h"

namespace kiln {
namespace {

TEST(ProgramInOutput, IsFoundInAnImageAsAStringOrBehindASymbolOfInternalLinkage) {
  EXPECT_TRUE(is_named_in_image("\x7f ELF k.cu", "/tmp/a/k.cu"));
  EXPECT_TRUE(is_named_in_image(".b8 $str[5] = {107, 46, 99, 117};", "/tmp/a/k.cu"));
  EXPECT_TRUE(is_named_in_image("_ZN34_INTERNAL_1_4_k_cu_k1fEi", "x.cu"));
  EXPECT_TRUE(is_named_in_image("_GLOBAL__N__0", "x.cu"));
  EXPECT_TRUE(is_named_in_image("of k/", "k/"));  // no last component
  EXPECT_FALSE(is_named_in_image(".entry k(.param .u64 p) /tmp/a", "/tmp/a/k.cu"));
}

TEST(ProgramInOutput, IsReplacedInALogWhereItBeginsMessages) {
  constexpr const char* kLog =
      "a.cu(1): warning #177-D: variable \"i\" was declared\n  int i;\n\n"
      "a.cu(2): note: x\n";
  EXPECT_EQ(renamed_log(kLog, "a.cu", "/tmp/b.cu"),
            "/tmp/b.cu(1): warning #177-D: variable \"i\" was declared\n  int i;\n\n"
            "/tmp/b.cu(2): note: x\n");
  EXPECT_EQ(renamed_log("b.h(1): warning\n", "a.cu", "x"), "b.h(1): warning\n");
  EXPECT_EQ(renamed_log("", "a.cu", "x"), "");
}

TEST(ProgramInOutput, CannotBeReplacedInALogThatHasItElsewhere) {
  for (const char* log : {"a.cu(1): defined at a.cu:1\n", "  a.cu(1)\n", "a.cu: x\n",
                          "xa.cu(1)\n", "a.cu"})
    EXPECT_EQ(renamed_log(log, "a.cu", "a.cu"), std::nullopt) << log;
}

TEST(ProgramInOutput, EndsTheLogOfItsFailure) {
  constexpr const char* kLog =
      "a.cu(1): error: x\n\n1 error detected in the compilation of \"a.cu\".\n";
  EXPECT_TRUE(is_failure_of(kLog, "a.cu"));
  EXPECT_FALSE(is_failure_of(kLog, "u"));
  EXPECT_FALSE(is_failure_of(kLog, "b.cu"));
}

}  // namespace
}  // namespace kiln
