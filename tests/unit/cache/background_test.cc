#include "cache/background.h"

#include <unistd.h>

#include <csignal>
#include <new>
#include <stop_token>
#include <thread>

#include "cache/counter_file.h"
#include "cache/counters.h"
#include "tests/support/child_process.h"
#include "tests/support/exit_amid_threads.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

/// A root with nothing but its counter file.
class BackgroundCounts : public testing::Test {
 protected:
  std::uint64_t hits() { return file_.read(10s).value()["hits"]; }

  test::TempDir dir_;
  Layout layout_{dir_.path()};
  TrustPolicy trust_ = TrustPolicy::of_this_process({}, {});
  CounterFile file_{layout_.counters(), real_file_system(), trust_};
  Counters counters_;
};

void trim_nothing(std::uint64_t /*bytes*/, const std::stop_token& /*stop*/) {}

TEST_F(BackgroundCounts, ThatAProcessNeverClosedAreWrittenAtItsEnd) {
  for (const bool has_thread : {false, true}) {
    test::ChildProcess child([&]() -> int {
      auto* const open = new Background(nullptr, &file_, counters_, trim_nothing);
      if (has_thread)
        open->flush(10s);
      counters_.add(Counter::kHits);
      test::exit_amid_threads(0);
    });
    EXPECT_EQ(child.wait(), 0);
  }
  EXPECT_EQ(hits(), 2);
}

TEST_F(BackgroundCounts, OfAParentAreNotWrittenAtTheEndOfAForkedChild) {
  Background open(nullptr, &file_, counters_, trim_nothing);
  ASSERT_TRUE(open.flush(10s));
  counters_.add(Counter::kHits);
  test::ChildProcess child([]() -> int { test::exit_amid_threads(0); });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(hits(), 0);
  ASSERT_TRUE(open.flush(10s));
  EXPECT_EQ(hits(), 1);
}

TEST_F(BackgroundCounts, AreWrittenNowAndThenWhileNothingElseHappens) {
  Background open(nullptr, &file_, counters_, trim_nothing, 10ms);
  ASSERT_TRUE(open.flush(10s));  // there is a thread
  counters_.add(Counter::kHits);
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (hits() == 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(1ms);
  EXPECT_EQ(hits(), 1);
}

TEST_F(BackgroundCounts, AreWrittenOfAProcessThatPublishesNothingAndIsKilledLater) {
  test::ChildProcess child([&]() -> int {
    auto* const open = new Background(nullptr, &file_, counters_, trim_nothing, 10ms);
    counters_.add(Counter::kHits);
    open->counted();
    for (;;) ::pause();
  });
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (hits() == 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(1ms);
  child.signal(SIGKILL);
  EXPECT_EQ(child.wait(), -SIGKILL);
  EXPECT_EQ(hits(), 1);
}

TEST(Background, WhatItsWorkThrowsEndsNeitherItNorTheHost) {
  Counters counters;
  int tried = 0;
  Background background(nullptr, nullptr, counters,
                        [&](std::uint64_t /*bytes*/, const std::stop_token&) {
                          ++tried;
                          throw std::bad_alloc();
                        });
  Entry entry;
  entry.size_bytes = 1;
  for (int i = 1; i <= 2; ++i) {
    background.published(entry);
    EXPECT_TRUE(background.flush(10s));
    EXPECT_EQ(tried, i);
  }
}

}  // namespace
}  // namespace kiln::cache
