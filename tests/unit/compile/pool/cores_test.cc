#include "compile/pool/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <thread>

#include "tests/support/temp_dir.h"

namespace kiln::compile {
namespace {

class CoresTest : public testing::Test {
 protected:
  CoresTest() { write("proc/self/cgroup", "0::/jobs/mine\n"); }

  void write(const std::filesystem::path& file, std::string_view text) {
    const auto path = root_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void write_quota(const std::filesystem::path& folder, std::string_view text) {
    write("sys/fs/cgroup" / folder / "cpu.max", text);
  }
  [[nodiscard]] std::optional<unsigned> cores() const {
    return cgroup_cores(root_.path());
  }

  const test::TempDir root_;
};

TEST_F(CoresTest, TheSmallestQuotaOnTheWayCounts) {
  write_quota("jobs", "350000 100000\n");
  write_quota("jobs/mine", "max 100000\n");
  EXPECT_EQ(cores(), 4U);
  write_quota("", "150000 100000\n");
  EXPECT_EQ(cores(), 2U);
}

TEST_F(CoresTest, OfVersion1TheQuotaCountsToo) {
  write("proc/self/cgroup", "4:cpu,cpuacct:/jobs\n3:cpuset:/\n0::/\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), std::nullopt);
  write("sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us", "250000\n");
  write("sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), 3U);
}

TEST_F(CoresTest, NoQuotaIsNoLimit) {
  EXPECT_EQ(cores(), std::nullopt);
  write_quota("", "max 100000\n");
  EXPECT_EQ(cores(), std::nullopt);
  write_quota("", "100000 100000\n");
  write("proc/self/cgroup", "4:cpu:/jobs\n");
  EXPECT_EQ(cores(), std::nullopt) << "of another version";
  write("proc/self/cgroup", "");
  EXPECT_EQ(cores(), std::nullopt);
}

TEST_F(CoresTest, NonsenseIsNoLimit) {
  for (const auto* const text :
       {"", "max", "-1 100000", "100000 0", "1e9 5", "5", "\n"}) {
    write_quota("", text);
    EXPECT_EQ(cores(), std::nullopt) << text;
  }
}

TEST_F(CoresTest, AQuotaBelowOneCoreIsOneCore) {
  write_quota("", "10000 100000\n");
  EXPECT_EQ(cores(), 1U);
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
