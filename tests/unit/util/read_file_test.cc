#include "util/read_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/elf_builder.h"
#include "tests/support/temp_dir.h"

namespace kiln {
namespace {

using testing::HasSubstr;

class ReadFile : public testing::Test {
 protected:
  const test::TempDir dir_;
  const std::filesystem::path file_ = dir_.path() / "file";
};

TEST_F(ReadFile, GivesAllBytesNulsIncluded) {
  const std::string text("a\0b\n", 4);
  test::write_file(file_, as_bytes(text));
  EXPECT_EQ(read_text_file(file_, 4), text);
  EXPECT_EQ(read_file(file_, 4).value(), test::bytes_of(text));
}

TEST_F(ReadFile, AnEmptyFileIsNoMiss) {
  test::write_file(file_, {});
  EXPECT_EQ(read_file(file_, 0).value(), Bytes());
}

TEST_F(ReadFile, AFileThatEndsBeforeItsSizeIsWhatIsThere) {
  const std::filesystem::path shorter = "/sys/devices/system/cpu/online";
  std::error_code none;
  if (std::filesystem::file_size(shorter, none) != 4096)
    GTEST_SKIP() << "no file here is shorter than its size";
  const auto text = read_text_file(shorter, 4096);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_LT(text->size(), 4096U);
  EXPECT_TRUE(text->starts_with("0") && text->ends_with('\n')) << *text;
}

TEST_F(ReadFile, AFileWhoseSizeIsSaidToBeNothingIsReadToItsEnd) {
  const std::filesystem::path procfs = "/proc/self/status";
  std::error_code none;
  if (std::filesystem::file_size(procfs, none) != 0)
    GTEST_SKIP() << "no file here has more bytes than its size";
  const auto text = read_text_file(procfs, 1U << 20U);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_TRUE(text->starts_with("Name:") && text->ends_with('\n')) << *text;
  const auto over = read_text_file(procfs, 4);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::kResourceLimit);
  EXPECT_THAT(over.error().message, HasSubstr("over 4 bytes"));
}

TEST_F(ReadFile, AnAbsentFileIsAMissAndAnAbsentTextIsNotFound) {
  EXPECT_EQ(read_file(file_, 1).value(), std::nullopt);
  EXPECT_EQ(read_text_file(file_, 1).error().code, ErrorCode::kNotFound);
  test::write_file(file_, {});
  EXPECT_EQ(read_file(file_ / "below a file", 1).value(), std::nullopt);
}

TEST_F(ReadFile, OneByteOverTheLimitIsRefused) {
  test::write_file(file_, as_bytes("12345"));
  const auto bytes = read_file(file_, 4);
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().code, ErrorCode::kResourceLimit);
  EXPECT_THAT(bytes.error().message, HasSubstr("5 bytes, over the limit of 4"));
}

TEST_F(ReadFile, AFolderOrAPipeIsAnErrorAndNoWait) {
  EXPECT_EQ(read_file(dir_.path(), 1).error().code, ErrorCode::kInvalidArgument);
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_EQ(read_file(file_, 1).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ReadFile, AnErrorNamesCallPathAndCause) {
  // A link to itself is an error for root, too.
  std::filesystem::create_symlink(file_, file_);
  EXPECT_EQ(read_file(file_, 1).error().message,
            "open " + file_.native() + ": Too many levels of symbolic links");
}

}  // namespace
}  // namespace kiln
