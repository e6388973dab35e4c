// The folder of standard headers, behind the toolkit's: which sources have it, and what
// of it is in their keys.

#include "header_trees.h"
#include "key/opened_files.h"
#include "tests/support/test.h"

namespace kiln::key {
namespace {

using test::later;
using test::write;

class StandardHeadersTest : public HeaderScanTest {
 protected:
  StandardHeadersTest() {
    standard_headers_ = dir_.path() / "standard";
    write(standard_headers_ / "limits", "#include <cuda/std/limits>");
    write(standard_headers_ / "array", "");
    write(toolkit_ / "cccl/cuda/std/limits", "");
    write(toolkit_ / "fp16.h", "#include <limits>");
    write(toolkit_ / "cuda.h", "#include <stdlib.h>");
  }
  bool has_them() {
    const HeaderSnapshot headers = *scan().headers;
    const bool has = headers.standard_headers == standard_headers_;
    EXPECT_EQ(has, headers.fields.find("standard_headers").has_value());
    EXPECT_EQ(has, !headers.standard_headers.empty());
    return has;
  }
};

TEST_F(StandardHeadersTest, AreNothingToASourceThatNamesNone) {
  for (const char* source : {"", "#include <fp16.h>", "#include <none>",
                             "#if __has_include(<fp16.h>)\n#endif"}) {
    input_.source = source;
    EXPECT_FALSE(has_them()) << source;
    const Fields with = fields();
    const fs::path folder = std::exchange(standard_headers_, {});
    EXPECT_EQ(fields(), with) << source;
    standard_headers_ = folder;
  }
}

TEST_F(StandardHeadersTest, AreAllInTheKeyOfASourceThatNamesOne) {
  input_.source = "#include <limits>";
  ASSERT_TRUE(has_them());
  const Fields before = fields();
  EXPECT_TRUE(before.find("toolkit_headers")) << "which they include";
  const test::TempDir other;
  fs::copy(standard_headers_, other.path() / "moved");
  const fs::path here = std::exchange(standard_headers_, other.path() / "moved");
  EXPECT_EQ(fields(), before);
  standard_headers_ = here;
  write(standard_headers_ / "array", "changed");
  EXPECT_NE(fields(), before);
}

TEST_F(StandardHeadersTest, AreThereForEveryWayToNameOne) {
  write(one_ / "own.h", "#include <array>");
  for (const char* source :
       {"#include \"limits\"", "#include <own.h>", "#if __has_include(<array>)\n#endif",
        "#ifdef NEVER\n#include <array>\n#endif", "#include <cuda.h>",
        "#define H <array>\n#if __has_include(H)\n#endif"}) {
    input_.source = source;
    EXPECT_TRUE(has_them()) << source;
  }
  input_.source = "#include H";
  EXPECT_FALSE(has_them());
  input_.macros = {{MacroAction::kDefine, "H=<array>"}};
  EXPECT_TRUE(has_them());
}

TEST_F(StandardHeadersTest, ComeBehindOnesOwnAndTheToolkits) {
  input_.source = "#include <limits>";
  write(two_ / "limits", "");
  EXPECT_FALSE(has_them());
  fs::remove(two_ / "limits");
  write(toolkit_ / "limits", "");
  EXPECT_FALSE(has_them());
}

TEST_F(StandardHeadersTest, FindOnesOwnFilesFirstAsTheCompilerDoes) {
  write(standard_headers_ / "limits", "#include <inner>");
  write(one_ / "inner", "1");
  input_.source = "#include <limits>";
  const Fields before = fields();
  write(one_ / "inner", "2");
  EXPECT_NE(fields(), before);
}

TEST_F(StandardHeadersTest, AreKnownAmongTheFilesThatTheCompilerOpened) {
  input_.source = "#include <limits>";
  const HeaderSnapshot headers = *scan().headers;
  const auto opened = [&] {
    return test::opened(
        {standard_headers_ / "limits", toolkit_ / "cccl/cuda/std/limits"});
  };
  const std::vector<fs::path> missed{one_ / "limits", toolkit_ / "limits",
                                     standard_headers_ / "none"};
  const auto before = opened();
  EXPECT_FALSE(find_unkeyed(headers, {before, later(), missed}));
  write(standard_headers_ / "limits", "changed");
  const auto after = opened();
  const auto unkeyed = find_unkeyed(headers, {after, later(), missed});
  ASSERT_TRUE(unkeyed);
  EXPECT_EQ(unkeyed->path, after[0].path);
}

TEST_F(StandardHeadersTest, AreReadOnceForAllSources) {
  if (const auto why = test::why_no_memo(dir_.path()); !why.empty())
    GTEST_SKIP() << why;
  input_.source = "#include <limits>";
  EXPECT_GT(scan().stats.toolkit_read, 4U);
  input_.source = "#include <array>";
  EXPECT_EQ(scan().stats.toolkit_read, 0U);
}

}  // namespace
}  // namespace kiln::key
