// Memos: damaged, foreign, unwritable ones are misses and nothing worse.

#include "key/memo_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "files.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln::key {
namespace {

std::optional<std::string> read(const fs::path& folder, std::string_view name = "m") {
  const auto bytes = read_memo(folder, name);
  if (!bytes)
    return std::nullopt;
  return std::string(as_text(*bytes));
}

TEST(MemoFile, ComesBackAsItWasWritten) {
  const test::TempDir dir;
  const fs::path folder = dir.path() / "memo";
  EXPECT_EQ(read(folder), std::nullopt);
  EXPECT_EQ(write_memo(folder, "m", as_bytes("payload")), MemoWrite::kWritten);
  EXPECT_EQ(read(folder), "payload");
  EXPECT_EQ(write_memo(folder, "m", {}), MemoWrite::kWritten);
  EXPECT_EQ(read(folder), "");
  EXPECT_EQ(dir.files().size(), 1U) << "a temporary was left";
}

TEST(MemoFile, IsAMissAtEveryTruncationAndForEveryFlippedByte) {
  const test::TempDir dir;
  std::ignore = write_memo(dir.path(), "m", as_bytes("payload"));
  const std::string whole = *read_text_file(dir.path() / "m", 1024);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    test::write(dir.path() / "m", whole.substr(0, i));
    EXPECT_EQ(read(dir.path()), std::nullopt) << "truncated to " << i;
    std::string flipped = whole;
    flipped[i] ^= 1;
    test::write(dir.path() / "m", flipped);
    EXPECT_EQ(read(dir.path()), std::nullopt) << "flipped at " << i;
  }
  test::write(dir.path() / "m", whole + "x");
  EXPECT_EQ(read(dir.path()), std::nullopt);
}

TEST(MemoFile, IsAMissWhereOthersCanWrite) {
  const test::TempDir dir;
  std::ignore = write_memo(dir.path(), "m", as_bytes("payload"));
  ASSERT_EQ(::chmod((dir.path() / "m").c_str(), 0666), 0);
  EXPECT_EQ(read(dir.path()), std::nullopt);
  ASSERT_EQ(::chmod((dir.path() / "m").c_str(), 0600), 0);
  EXPECT_EQ(read(dir.path()), "payload");
  ASSERT_EQ(::chmod(dir.path().c_str(), 0777), 0);
  EXPECT_EQ(read(dir.path()), std::nullopt);
}

TEST(MemoFile, ThatCannotBeWrittenIsOnlyReported) {
  const test::TempDir dir;
  test::write(dir.path() / "file", "");
  EXPECT_EQ(write_memo(dir.path() / "file", "m", {}), MemoWrite::kFailed);
  EXPECT_EQ(write_memo(dir.path() / "no" / "such", "m", {}), MemoWrite::kFailed);
  fs::create_directories(dir.path() / "m" / "taken");
  EXPECT_EQ(write_memo(dir.path(), "m", {}), MemoWrite::kFailed);
  EXPECT_EQ(write_memo({}, "m", {}), MemoWrite::kNotNeeded);
  EXPECT_EQ(dir.files().size(), 1U) << "a temporary was left";
}

TEST(MemoFile, DoesNotFillTheFolder) {
  const test::TempDir dir;
  for (int i = 0; i < 300; ++i)
    std::ignore = write_memo(dir.path(), "m" + std::to_string(i), {});
  EXPECT_EQ(dir.files().size(), 256U);
  EXPECT_EQ(read(dir.path(), "m299"), "");
}

TEST(MemoFile, IsWholeWhileOthersReplaceIt) {
  const test::TempDir dir;
  const std::string a(100'000, 'a');
  const std::string b(50'000, 'b');
  std::ignore = write_memo(dir.path(), "m", as_bytes(a));
  const auto writer = [&](const std::string& text) {
    for (int i = 0; i < 50; ++i)
      std::ignore = write_memo(dir.path(), "m", as_bytes(text));
  };
  std::thread first(writer, a);
  std::thread second(writer, b);
  for (int i = 0; i < 100; ++i) {
    const auto seen = read(dir.path());
    EXPECT_TRUE(seen == a || seen == b);
  }
  first.join();
  second.join();
}

}  // namespace
}  // namespace kiln::key
