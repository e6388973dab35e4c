#include "util/read_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/elf_builder.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

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
  EXPECT_THAT(read_text_file(procfs, 4),
              test::IsError(ErrorCode::kResourceLimit, HasSubstr("over 4 bytes")));
}

TEST_F(ReadFile, AnAbsentFileIsAMissAndAnAbsentTextIsNotFound) {
  EXPECT_EQ(read_file(file_, 1).value(), std::nullopt);
  EXPECT_EQ(read_text_file(file_, 1).error().code, ErrorCode::kNotFound);
  test::write_file(file_, {});
  EXPECT_EQ(read_file(file_ / "below a file", 1).value(), std::nullopt);
}

TEST_F(ReadFile, OneByteOverTheLimitIsRefused) {
  test::write_file(file_, as_bytes("12345"));
  EXPECT_THAT(read_file(file_, 4),
              test::IsError(ErrorCode::kResourceLimit,
                            HasSubstr("5 bytes, over the limit of 4")));
}

TEST_F(ReadFile, AFolderOrAPipeIsAnErrorAndNoWait) {
  EXPECT_EQ(read_file(dir_.path(), 1).error().code, ErrorCode::kInvalidArgument);
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_EQ(read_file(file_, 1).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ReadFile, LinesAreThoseOfTheWholeTextWhereverAPieceEnds) {
  std::string text = "\n";
  for (std::size_t i = 0; i < 1000; ++i) text += std::string(i, 'x') + "\r\n";
  for (const std::string_view end : {"", "\n", "no newline"}) {
    test::write_file(file_, as_bytes(text + std::string(end)));
    std::string joined;
    EXPECT_TRUE(read_lines(file_, 1U << 20U, [&](std::string_view line) {
      joined.append(line).append("\n");
      return Result<void>();
    }));
    EXPECT_EQ(joined, text + std::string(end) + (end.size() > 1 ? "\n" : ""));
  }
}

TEST_F(ReadFile, LinesEndAtTheFirstErrorAndAtTheLimit) {
  test::write_file(file_, as_bytes("1\n2\n3\n"));
  int lines = 0;
  const auto second = read_lines(file_, 6, [&](std::string_view) -> Result<void> {
    if (++lines == 2)
      return fail(ErrorCode::kCancelled, "enough");
    return {};
  });
  EXPECT_EQ(second.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(lines, 2);
  const auto none = [](std::string_view) { return Result<void>(); };
  EXPECT_EQ(read_lines(file_, 5, none).error().code, ErrorCode::kResourceLimit);
  EXPECT_EQ(read_lines(dir_.path(), 5, none).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(read_lines(dir_.path() / "none", 5, none).error().code,
            ErrorCode::kNotFound);
}

TEST_F(ReadFile, AnErrorNamesCallPathAndCause) {
  // A link to itself is an error for root, too.
  std::filesystem::create_symlink(file_, file_);
  EXPECT_EQ(read_file(file_, 1).error().message,
            "open " + file_.native() + ": Too many levels of symbolic links");
}

}  // namespace
}  // namespace kiln
