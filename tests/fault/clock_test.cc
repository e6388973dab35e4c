// Row 29: clocks and stamps that are a day off. The process's clock is set by a
// preloaded library, the stamps of files by utimensat; the kernel's clock stays right,
// as where a file server and its clients disagree.

#include <sys/wait.h>
#include <time.h>

#include <array>
#include <cstdlib>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "cache/cache.h"
#include "tests/support/child_process.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/preload.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using test::Campaign;
using test::Preload;

constexpr int kKernels = 6;  // of tiny_fwd
constexpr auto kDay = 24h;
constexpr std::array kOffsets{"86400", "-86400"};

class ClockTest : public testing::Test {
 protected:
  ClockTest() {
    kiln_.use_fake_nvrtc();
    templates_ = test::write_tiny_templates(kiln_);
  }

  void set_clock(const std::string& seconds) {
    Preload::out_of(kiln_);
    if (!seconds.empty())
      Preload{.network = {}, .locks = {}, .clock = seconds}.into(kiln_);
  }

  [[nodiscard]] test::KilnProgram::Arguments warming() const {
    return {"warm",     "--template-dir", templates_, "--template",
            "tiny_fwd", "--arch",         "9.0"};
  }
  [[nodiscard]] json warm() { return kiln_.json_of(warming()); }

  void stamp_all(std::chrono::seconds age) const {
    for (const fs::path& object : kiln_.object_files())
      fs::last_write_time(object, fs::file_time_type::clock::now() - age);
  }

  [[nodiscard]] std::uintmax_t bytes() const {
    std::uintmax_t sum = 0;
    for (const fs::path& object : kiln_.object_files()) sum += fs::file_size(object);
    return sum;
  }

  test::KilnProgram kiln_;
  std::string templates_;
};

/// Else what follows would prove nothing.
TEST_F(ClockTest, TheClockOfTheProgramIsSet) {
  for (const char* offset : kOffsets) {
    set_clock(offset);
    EXPECT_EQ(kiln_.run({"clear", "--all", "--yes"}).status, 0);
    EXPECT_EQ(warm()["compiled"], kKernels);
    const std::string created = kiln_.json_of({"ls"})["entries"][0]["created"];
    std::tm day{};
    ASSERT_NE(::strptime(created.c_str(), "%Y-%m-%dT%H:%M:%S", &day), nullptr);
    const auto difference = ::timegm(&day) - ::time(nullptr);
    EXPECT_LT(std::abs(difference - std::atol(offset)), 600) << created;
  }
}

TEST_F(ClockTest, fault_29_WhatOneClockBuiltEveryOtherClockFinds) {
  Campaign campaign;
  for (const char* builder : {"86400", "-86400", ""}) {
    set_clock(builder);
    EXPECT_EQ(kiln_.run({"clear", "--all", "--yes"}).status, 0);
    EXPECT_EQ(warm()["compiled"], kKernels);
    for (const char* finder : {"-86400", "", "86400"}) {
      campaign.injected();
      set_clock(finder);
      if (const json report = warm(); report["hits"] != kKernels)
        campaign.wrong(std::string("built at ") + builder + ", found at " + finder +
                       ": " + report.dump());
    }
  }
}

TEST_F(ClockTest, fault_29_ATrimEvictsNoMoreThanItMust) {
  Campaign campaign;
  for (const auto age : {std::chrono::seconds(60), std::chrono::seconds(kDay),
                         std::chrono::seconds(-kDay)}) {
    for (const char* offset : {"86400", "-86400", ""}) {
      campaign.injected();
      set_clock("");
      std::ignore = warm();
      stamp_all(age);
      const auto total = bytes();
      set_clock(offset);
      const json trimmed =
          kiln_.json_of({"trim", "--max-size", std::to_string(total - 1) + "B"});
      // One in ten goes, and what is of tomorrow stays till then.
      if (trimmed["removed"] > 1)
        campaign.wrong("a mass eviction: " + trimmed.dump());
      const json again = warm();
      EXPECT_EQ(again["hits"].get<int>() + trimmed["removed"].get<int>(), kKernels);
    }
  }
}

TEST_F(ClockTest, fault_29_ProcessesWithOtherClocksRespectEachOthersLocks) {
  Campaign campaign;
  auto verb = warming();
  verb.emplace_back("--json");
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(kiln_.run({"clear", "--all", "--yes"}).status, 0);
    set_clock(kOffsets[0]);
    test::Running ahead = kiln_.start(verb);
    set_clock(kOffsets[1]);
    test::Running behind = kiln_.start(verb);
    const json one = ahead.finish().json();
    const json other = behind.finish().json();
    campaign.injected(2);
    if (one["compiled"].get<int>() + other["compiled"].get<int>() != kKernels)
      campaign.wrong("a lock was broken: " + one.dump() + other.dump());
  }
}

TEST_F(ClockTest, fault_29_AChangedHeaderIsSeenByEveryClock) {
  Campaign campaign;
  const std::string source =
      kiln_.write("kernel.cu",
                  "#include \"n.h\"\nextern \"C\" __global__ void k(int* x) "
                  "{ *x = N; }\n");
  std::set<std::string> keys;
  for (int round = 0; round < 6; ++round) {
    set_clock(round % 3 == 2 ? "" : kOffsets[static_cast<std::size_t>(round % 3)]);
    // Of one size and, with its stamp put back, of one time.
    const std::string header =
        kiln_.write("include/n.h", "#define N " + std::to_string(round) + "\n");
    fs::last_write_time(header, fs::file_time_type::clock::now() - kDay);
    const json report = kiln_.json_of(
        {"compile", source, "--arch", "9.0", "-I", kiln_.folder() / "include"});
    keys.insert(report["entries"][0]["key"]);
    campaign.injected();
    if (report["compiled"] != 1)
      campaign.wrong("a stale hit: " + report.dump());
  }
  EXPECT_EQ(keys.size(), 6U);
}

TEST_F(ClockTest, fault_29_AUseSetsAStampOfAnotherDayRightAndLosesNothing) {
  Campaign campaign;
  cache::CacheOptions options;
  options.root = kiln_.folder() / "root";
  const auto cache = cache::Cache::open(options);
  constexpr int kObjects = 12;
  for (int i = 0; i < kObjects; ++i) {
    std::ignore = cache->publish(*test::ReferenceObject(i));
    const fs::path object = cache->layout().object(test::ReferenceObject(i).key());
    const auto off = i % 3 == 0 ? kDay : i % 3 == 1 ? -kDay : -kDay * 365;
    fs::last_write_time(object, fs::file_time_type::clock::now() - off);
    campaign.injected();
  }
  campaign.check_hits(*cache, kObjects, "with a stamp of another day");
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < kObjects; ++i) {
    const fs::path object = cache->layout().object(test::ReferenceObject(i).key());
    if (const auto age = now - fs::last_write_time(object); age < -1min || age > 1min)
      campaign.wrong("object " + std::to_string(i) + " keeps its wrong stamp");
  }
  EXPECT_EQ(cache->trim({.limit_bytes = 1}).value().removed, 0U) << "all are in use";
  campaign.check_hits(*cache, kObjects, "after a trim");
}

TEST_F(ClockTest, fault_29_ACollectorFromTomorrowCostsAPublisherNothing) {
  Campaign campaign;
  cache::CacheOptions options;
  options.root = kiln_.cache_dir();
  test::ChildProcess publisher([&] {
    test::FaultyFileSystem files;
    bool stopped = false;
    files.before = [&](std::string_view call, int) {
      if (call == "link" && !std::exchange(stopped, true))
        ::raise(SIGSTOP);  // its temporary is finished, and has no name yet
      return 0;
    };
    cache::CacheOptions mine = options;
    mine.file_system = &files;
    const auto cache = cache::Cache::open(mine);
    const auto stored = cache->publish(*test::ReferenceObject(0));
    return stored.outcome == cache::Published::kStored && stopped ? 0 : 1;
  });
  int status = 0;
  ASSERT_TRUE(test::eventually(20s, [&] {
    return ::waitpid(publisher.pid(), &status, WUNTRACED | WNOHANG) ==
               publisher.pid() &&
           WIFSTOPPED(status);
  }));
  set_clock("86400");
  EXPECT_EQ(kiln_.run({"trim"}).status, 0);  // to it the temporary is an orphan
  campaign.injected();
  publisher.signal(SIGCONT);
  if (publisher.wait() != 0)
    campaign.wrong("the publisher was hurt");
  campaign.check_hits(*cache::Cache::open(options), 1, "after it");
}

}  // namespace
}  // namespace kiln
