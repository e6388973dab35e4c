#include "util/proc_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/temp_dir.h"

namespace kiln {
namespace {

TEST(ProcFile, IsReadThoughItsSizeReadsAsZero) {
  ASSERT_EQ(std::filesystem::file_size("/proc/self/stat"), 0U);
  const auto text = read_proc_file("/proc/self/stat");
  ASSERT_TRUE(text);
  EXPECT_TRUE(text->starts_with(std::to_string(::getpid()) + " ("));
  EXPECT_TRUE(text->ends_with('\n'));
}

TEST(ProcFile, ThatIsNotThereOrIsNoFileIsNone) {
  EXPECT_FALSE(read_proc_file("/proc/self/no-such-file"));
  EXPECT_FALSE(read_proc_file("/proc/self"));
}

TEST(ProcFile, IsCutAfterItsFirst64KiB) {
  const test::TempDir folder;
  const auto path = folder.path() / "file";
  std::string whole(3 * 4096 + 7, 'a');
  std::ofstream(path) << whole;
  EXPECT_EQ(read_proc_file(path), whole);
  whole += std::string(60 << 10, 'b');
  std::ofstream(path) << whole;
  EXPECT_EQ(read_proc_file(path), whole.substr(0, 64 << 10));
  std::ofstream(path, std::ios::trunc).flush();
  EXPECT_EQ(read_proc_file(path), "");
}

}  // namespace
}  // namespace kiln
