// A pack of a GiB on its way: the memory of no process grows with it.

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/integration/program_packs.h"

namespace kiln {
namespace {

class ProgramHugePackTest : public ProgramPacksTest {};

TEST_F(ProgramHugePackTest, APackOfAGibIsPushedAndPulledInLittleMemory) {
  constexpr int kManyObjects = 700;
  const std::string file = write_pack("huge.kpack", kManyObjects);
  EXPECT_GT(std::filesystem::file_size(file), 1U << 30U);
  for (const Arguments& arguments :
       {Arguments{"push", "--pack", file, "--name", "job"},
        Arguments{"pull", "--pack", "job", "-o", place("kept.kpack")},
        Arguments{"pull", "--pack", "job"}}) {
    const Run run = measured(arguments);
    EXPECT_EQ(run.finished.status, 0) << run.finished.text();
    EXPECT_LT(run.kiln_mib + run.helper_mib, 64U);
  }
}

}  // namespace
}  // namespace kiln
