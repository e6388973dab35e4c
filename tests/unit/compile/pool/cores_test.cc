#include "compile/pool/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <thread>

#include "tests/support/temp_dir.h"

namespace kiln::compile {
namespace {

void write(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(Cores, TheSmallestQuotaOnTheWayCounts) {
  const test::TempDir root;
  write(root.path() / "jobs/cpu.max", "350000 100000\n");
  write(root.path() / "jobs/mine/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cores(root.path(), "0::/jobs/mine\n"), 4U);
  write(root.path() / "cpu.max", "150000 100000\n");
  EXPECT_EQ(cgroup_cores(root.path(), "0::/jobs/mine\n"), 2U);
}

TEST(Cores, NoQuotaIsNoLimit) {
  const test::TempDir root;
  EXPECT_EQ(cgroup_cores(root.path(), "0::/\n"), std::nullopt);
  write(root.path() / "cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cores(root.path(), "0::/\n"), std::nullopt);
  EXPECT_EQ(cgroup_cores(root.path(), "4:cpu:/jobs\n"), std::nullopt);
  EXPECT_EQ(cgroup_cores(root.path(), ""), std::nullopt);
}

TEST(Cores, NonsenseIsNoLimit) {
  const test::TempDir root;
  for (const auto* const text :
       {"", "max", "-1 100000", "100000 0", "1e9 5", "5", "\n"}) {
    write(root.path() / "cpu.max", text);
    EXPECT_EQ(cgroup_cores(root.path(), "0::/\n"), std::nullopt) << text;
  }
}

TEST(Cores, AQuotaBelowOneCoreIsOneCore) {
  const test::TempDir root;
  write(root.path() / "cpu.max", "10000 100000\n");
  EXPECT_EQ(cgroup_cores(root.path(), "0::/\n"), 1U);
}

TEST(Cores, AThreadOnOneCoreMayUseOne) {
  EXPECT_GE(usable_cores(), 1U);
  std::thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(usable_cores(), 1U);
  }).join();
}

}  // namespace
}  // namespace kiln::compile
