// When a worker believes that a precompiled header is still the one it has read.

#include "compile/worker/precompiled_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_dir.h"

namespace kiln::compile {
namespace {

constexpr std::uint64_t kAddress = 0x1000;

class PrecompiledFileTest : public testing::Test {
 protected:
  void write(const std::string& text) const { std::ofstream(path_) << text; }

  const test::TempDir dir_;
  const std::filesystem::path path_ = dir_.path() / "headers";
};

/// A file system's clock stands still for some milliseconds: most of these writes leave
/// the times of the file as they are.
TEST_F(PrecompiledFileTest, AWriteRightAfterACheckIsSeen) {
  write("whole");
  const auto file = describe_precompiled(path_, kAddress);
  ASSERT_TRUE(file);
  for (int i = 0; i < 100; ++i) {
    write("whole");
    EXPECT_EQ(check_precompiled(*file, kAddress), PrecompiledUse::kUsed);
    write("whOle");
    EXPECT_EQ(check_precompiled(*file, kAddress), PrecompiledUse::kDamaged) << i;
  }
}

TEST_F(PrecompiledFileTest, AnotherFileInItsPlaceAndNoneAreDamaged) {
  write("whole");
  const auto file = describe_precompiled(path_, kAddress);
  ASSERT_TRUE(file);
  EXPECT_EQ(check_precompiled(*file, kAddress), PrecompiledUse::kUsed);
  EXPECT_EQ(check_precompiled(*file, kAddress + 1), PrecompiledUse::kElsewhere);
  std::ofstream(dir_.path() / "other") << "other";
  std::filesystem::rename(dir_.path() / "other", path_);
  EXPECT_EQ(check_precompiled(*file, kAddress), PrecompiledUse::kDamaged);
  std::filesystem::remove(path_);
  EXPECT_EQ(check_precompiled(*file, kAddress), PrecompiledUse::kDamaged);
}

}  // namespace
}  // namespace kiln::compile
