// Which tree an include folder of the toolkit belongs to.

#include "key/toolkit_folders.h"

#include "files.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::key {
namespace {

using test::write;

class ToolkitFoldersTest : public testing::Test {
 protected:
  ToolkitFoldersTest() {
    write(include_ / "cccl/cub.h", "");
    write(beside_ / "cub.h", "");
  }

  test::TempDir dir_;
  fs::path include_ = dir_.path() / "cuda/include";
  fs::path beside_ = dir_.path() / "cccl/include";
};

TEST_F(ToolkitFoldersTest, OneInsideAnotherIsPartOfItsTree) {
  const std::vector<fs::path> folders{include_, include_ / "cccl"};
  const ToolkitFolders toolkit(folders);
  ASSERT_THAT(toolkit.trees(), SizeIs(1));
  EXPECT_EQ(toolkit.trees()[0].name, "toolkit");
  EXPECT_THAT(toolkit.trees()[0].inner, ElementsAre("", "cccl/"));
  EXPECT_EQ(toolkit.label((include_ / "cccl/cub.h").native()), "toolkit/cccl/cub.h");
}

TEST_F(ToolkitFoldersTest, SideBySideAreTreesOfTheirOwn) {
  const std::vector<fs::path> folders{include_, beside_};
  const ToolkitFolders toolkit(folders);
  ASSERT_THAT(toolkit.trees(), SizeIs(2));
  EXPECT_EQ(toolkit.trees()[1].name, "toolkit2");
  EXPECT_EQ(toolkit.label((beside_ / "cub.h").native()), "toolkit2/cub.h");
  EXPECT_EQ(toolkit.label((beside_ / "../x.h").native()), std::nullopt);
}

TEST_F(ToolkitFoldersTest, AreKnownByAnyNameAndLeftByDots) {
  const std::vector<fs::path> folders{include_, beside_};
  const ToolkitFolders toolkit(folders);
  fs::create_directory_symlink(beside_, dir_.path() / "alias");
  const auto place = toolkit.place_of(dir_.path() / "alias");
  ASSERT_TRUE(place);
  EXPECT_EQ(toolkit.label(*place, "cub.h"), "toolkit2/cub.h");
  EXPECT_EQ(toolkit.label(*place, "../cub.h"), std::nullopt);
  EXPECT_FALSE(toolkit.place_of(dir_.path()));
  EXPECT_FALSE(toolkit.place_of(dir_.path() / "none"));
  EXPECT_FALSE(ToolkitFolders({}).place_of(include_));
}

TEST_F(ToolkitFoldersTest, OneThatIsNotThereHoldsNothing) {
  const std::vector<fs::path> folders{dir_.path() / "none", include_};
  const ToolkitFolders toolkit(folders);
  EXPECT_FALSE(toolkit.place_of(dir_.path()));
  EXPECT_EQ(toolkit.place_of(include_ / "cccl")->tree, 1U);
}

}  // namespace
}  // namespace kiln::key
