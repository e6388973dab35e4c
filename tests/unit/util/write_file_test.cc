#include "util/write_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "util/read_file.h"

namespace kiln {
namespace {

constexpr mode_t kMode = 0640;

class WriteFileTest : public testing::Test {
 protected:
  const test::TempDir dir_;
  const std::filesystem::path path_ = dir_.path() / "file";
};

TEST_F(WriteFileTest, ReplaceGivesTheNewBytesAndTheModeAndLeavesNothingElse) {
  ASSERT_TRUE(replace_file(path_, as_bytes("one"), kMode));
  ASSERT_TRUE(replace_file(path_, as_bytes("second"), kMode));
  EXPECT_EQ(read_text_file(path_, 100).value(), "second");
  EXPECT_EQ(dir_.files().size(), 1U);
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777U, kMode);
}

TEST_F(WriteFileTest, ReplaceMakesTheLastFolder) {
  EXPECT_TRUE(replace_file(dir_.path() / "new" / "file", as_bytes("x"), kMode));
  const auto deep = replace_file(dir_.path() / "a" / "b" / "c", as_bytes("x"), kMode);
  ASSERT_FALSE(deep);
  EXPECT_NE(deep.error().message.find("mkdir"), std::string::npos);
}

TEST_F(WriteFileTest, AFailedReplaceLeavesTheOldFileAndNoTemporary) {
  ASSERT_TRUE(replace_file(path_, as_bytes("old"), kMode));
  const auto onto_folder = dir_.path() / "folder";
  std::filesystem::create_directories(onto_folder / "inside");
  EXPECT_THAT(replace_file(onto_folder, as_bytes("new"), kMode),
              test::IsError(ErrorCode::kIo));
  EXPECT_EQ(dir_.files(), std::vector{path_});
}

TEST_F(WriteFileTest, AnExchangeGivesTheOldFileUntilItsEndAndMovesNoFolder) {
  for (const char* const text : {"one", "second"}) {
    auto file = NewFile::with(path_, as_bytes(text));
    ASSERT_TRUE(file);
    const auto old = file->exchange(kMode);
    ASSERT_TRUE(old) << old.error().message;
    EXPECT_EQ(read_text_file(*old, 100).value_or(""), *old == "" ? "" : "one");
    EXPECT_EQ(read_text_file(path_, 100), text);
  }
  EXPECT_EQ(dir_.files(), std::vector{path_});
  const auto folder = dir_.path() / "folder";
  std::filesystem::create_directory(folder);
  {
    auto file = NewFile::with(folder, as_bytes("new"));
    ASSERT_TRUE(file);
    EXPECT_THAT(file->exchange(kMode),
                test::IsError(ErrorCode::kIo, testing::HasSubstr("Is a directory")));
  }
  EXPECT_TRUE(std::filesystem::is_directory(folder));
  EXPECT_EQ(dir_.files(), std::vector{path_});
}

TEST_F(WriteFileTest, CreateRefusesAFileThatIsThereAndALink) {
  ASSERT_TRUE(create_file(path_, as_bytes("mine"), kMode));
  EXPECT_FALSE(create_file(path_, as_bytes("yours"), kMode));
  std::filesystem::create_symlink("elsewhere", dir_.path() / "link");
  EXPECT_FALSE(create_file(dir_.path() / "link", as_bytes("yours"), kMode));
  EXPECT_EQ(read_text_file(path_, 100).value(), "mine");
}

TEST_F(WriteFileTest, ANewFileIsNoneUntilItIsCommitted) {
  ASSERT_TRUE(replace_file(path_, as_bytes("old"), kMode));
  {
    const auto dropped = NewFile::create(path_);
    ASSERT_TRUE(dropped);
    ASSERT_TRUE(write_all(dropped->descriptor(), as_bytes("new"), path_));
  }
  EXPECT_EQ(read_text_file(path_, 100), "old");
  EXPECT_EQ(dir_.files().size(), 1U);
  auto file = NewFile::create(path_);
  ASSERT_TRUE(write_all(file->descriptor(), as_bytes("new"), path_));
  auto moved = std::move(*file);
  ASSERT_TRUE(moved.commit(kMode));
  EXPECT_EQ(read_text_file(path_, 100), "new");
  EXPECT_FALSE(NewFile::create(dir_.path() / "missing" / "file"));
}

}  // namespace
}  // namespace kiln
