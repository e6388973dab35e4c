// Processes that count in one root: at once, killed, forked.

#include <unistd.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "cache/counter_file.h"
#include "tests/support/child_process.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

using Counts = CounterFile::Counts;
using test::ChildProcess;

constexpr std::chrono::milliseconds kPatience{60'000};

class CounterProcessesTest : public testing::Test {
 protected:
  Counts read() { return file_.read(kPatience).value(); }

  const test::TempDir dir_;
  const Layout layout_{dir_.path()};
  const TrustPolicy trust_ = TrustPolicy::of_this_process({});
  CounterFile file_{layout_.counters(), real_file_system(), trust_};
};

TEST_F(CounterProcessesTest, WhatManyProcessesAddAtOnceIsAllThere) {
  constexpr int kProcesses = 24;
  constexpr int kRounds = 100;
  test::Signal go;
  std::vector<ChildProcess> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.emplace_back([&, i] {
      const std::string own = "process_" + std::to_string(i);
      go.wait();
      for (int round = 0; round < kRounds; ++round) {
        if (!file_.add({{"hits", 1}, {"misses", 2}, {own, 1}}, kPatience))
          return 1;
      }
      return 0;
    });
  }
  for (int i = 0; i < kProcesses; ++i) go.raise();
  for (ChildProcess& child : children) EXPECT_EQ(child.wait(), 0);
  const Counts counts = read();
  EXPECT_EQ(counts.size(), kProcesses + 2U);
  EXPECT_EQ(counts.at("hits"), std::uint64_t{kProcesses} * kRounds);
  EXPECT_EQ(counts.at("misses"), 2U * kProcesses * kRounds);
  for (int i = 0; i < kProcesses; ++i)
    EXPECT_EQ(counts.at("process_" + std::to_string(i)), std::uint64_t{kRounds});
}

TEST_F(CounterProcessesTest, AKillAtAnyTimeLeavesWholeCountsAndNoLock) {
  std::uint64_t before = 0;
  for (int round = 0; round < 100; ++round) {
    test::Signal counting;
    ChildProcess child([&] {
      for (bool told = false;;) {
        const bool added = file_.add({{"one", 1}, {"other", 1}}, kPatience).has_value();
        if (added && !told)
          counting.raise();
        told = told || added;
      }
      return 0;
    });
    counting.wait();
    std::this_thread::sleep_for(std::chrono::microseconds(37 * (round % 17)));
    child.signal(SIGKILL);
    ASSERT_EQ(child.wait(), -SIGKILL);
    const auto started = Clock::now();
    const Counts counts = read();
    EXPECT_LT(Clock::now() - started, 10s) << "the lock of the dead is still there";
    ASSERT_EQ(counts.size(), 2U);
    EXPECT_EQ(counts.at("one"), counts.at("other"));
    EXPECT_GT(counts.at("one"), before);
    before = counts.at("one");
  }
}

TEST_F(CounterProcessesTest, AChildForkedInMidCountKeepsNoLock) {
  std::vector<ChildProcess> children;
  test::FaultyFileSystem files;
  files.before = [&](std::string_view call, int) {
    if (call == "pread" || call == "pwrite") {
      children.emplace_back([] {
        ::pause();
        return 0;
      });
    }
    return 0;
  };
  CounterFile forking(layout_.counters(), files, trust_);
  ASSERT_TRUE(forking.add({{"hits", 1}}, kPatience));
  ASSERT_TRUE(forking.read(1s));
  EXPECT_GE(children.size(), 3U);
  EXPECT_TRUE(file_.add({{"hits", 1}}, 1s)) << "while the children live";
  EXPECT_EQ(read().at("hits"), 2U);
}

TEST_F(CounterProcessesTest, AFileThatIsDeletedAllTheTimeHurtsNobody) {
  std::vector<ChildProcess> children;
  for (int i = 0; i < 6; ++i) {
    children.emplace_back([&, i] {
      for (int round = 0; round < 300; ++round) {
        if (!file_.add({{"hits", 1}}, kPatience) || !file_.read(kPatience))
          return 1;
        if (round % 7 == i)
          std::filesystem::remove(layout_.counters());
      }
      return 0;
    });
  }
  for (ChildProcess& child : children) EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(file_.add({{"hits", 1}}, kPatience));
  EXPECT_LE(read().at("hits"), 1801U);
}

}  // namespace
}  // namespace kiln::cache
