// What the toolkit's headers can ask for, by name.

#include "key/toolkit_operands.h"

#include "tests/support/test.h"

namespace kiln::key {
namespace {

/// cuda.h, which asks for <stdint.h> and <limits>, and cccl/cub/cub.h.
ToolkitTree toolkit() {
  std::vector<TreeFile> files{{"cccl/cub/cub.h", {}, true, Digest()},
                              {"cuda.h", {}, true, Digest()}};
  return {.name = "toolkit",
          .headers = std::make_shared<const IncludeTree>(
              "/x", std::move(files), std::vector<std::string>{"limits", "stdint.h"},
              Digest()),
          .folders = {"", "cccl/"}};
}

TEST(ToolkitOperands, AreWhatIsAskedForAndEveryFileFromEachFolder) {
  const ToolkitTree tree = toolkit();
  std::vector<std::string_view> operands{"before"};
  append_operands(tree, operands);
  EXPECT_THAT(operands, UnorderedElementsAre("before", "limits", "stdint.h", "cuda.h",
                                             "cccl/cub/cub.h", "cub/cub.h"));
}

TEST(ToolkitOperands, AreFoundOneByOneToo) {
  const ToolkitTree tree = toolkit();
  std::vector<std::string_view> operands;
  append_operands(tree, operands);
  for (const std::string_view operand : operands)
    EXPECT_TRUE(has_operand(tree, operand)) << operand;
  for (const char* const other : {"", "cub.h", "cub", "stdint", "cuda.h/", "a.stdh"})
    EXPECT_FALSE(has_operand(tree, other)) << other;
}

TEST(ToolkitOperands, HaveTheSuffixThatNvrtcTriesBehindThem) {
  EXPECT_TRUE(has_operand(toolkit(), "limits.stdh"));
  EXPECT_FALSE(has_operand(toolkit(), "numeric.stdh"));
}

}  // namespace
}  // namespace kiln::key
