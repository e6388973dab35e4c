// How requests are spread: within their bounds whatever the chance, and evenly.

#include "remote/pacing.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/remote/virtual_time.h"

namespace kiln::remote {
namespace {

using test::always;
using test::kStart;
using namespace std::chrono_literals;

TEST(Pacing, OnlyAProcessWithARankWaitsAtItsStartAndNeverLongerThanTheWait) {
  EXPECT_EQ(start_delay(false, 250ms, always(1)), 0ms);
  EXPECT_EQ(start_delay(true, 250ms, always(0)), 0ms);
  EXPECT_EQ(start_delay(true, 250ms, always(0.5)), 125ms);
  EXPECT_LE(start_delay(true, 250ms, always(0.999999)), 250ms);
  EXPECT_EQ(start_delay(true, 0ms, always(0.5)), 0ms);
}

TEST(Pacing, ARetryWaitsUpToTwiceAsLongEachTime) {
  EXPECT_EQ(retry_delay(1, always(1)), 500ms);
  EXPECT_EQ(retry_delay(2, always(1)), 1s);
  EXPECT_EQ(retry_delay(3, always(1)), 2s);
  EXPECT_EQ(retry_delay(1000000, always(1)), 10s);
  EXPECT_EQ(retry_delay(-1, always(1)), 500ms);
  EXPECT_EQ(retry_delay(3, always(0)), 0ms) << "full jitter";
}

/// When a poll that finds nothing asks, in milliseconds from its start.
std::vector<long> polls(Duration wait, double chance) {
  Poll poll(kStart + wait, always(chance));
  std::vector<long> asked;
  TimePoint now = kStart;
  while (const auto next = poll.next(now)) {
    EXPECT_GE(*next, now);
    now = *next;
    asked.push_back(static_cast<long>((now - kStart) / 1ms));
  }
  EXPECT_FALSE(poll.next(now));
  return asked;
}

TEST(Pacing, APollAsksHalfAsOftenEachTimeAndOnceAtTheEnd) {
  EXPECT_EQ(polls(10s, 1), (std::vector<long>{50, 150, 350, 750, 1550, 3150, 5150, 7150,
                                              9150, 10000}));
  EXPECT_EQ(polls(10s, 0),
            (std::vector<long>{25, 75, 175, 375, 775, 1575, 2575, 3575, 4575, 5575,
                               6575, 7575, 8575, 9575, 10000}));
}

TEST(Pacing, APollOfAMinuteAsksAtMostSixtyFiveTimes) {
  EXPECT_LE(polls(60s, 0).size(), 65U);
  EXPECT_EQ(polls(60s, 0).back(), 60000);
}

TEST(Pacing, APollWithoutTimeNeverAsksAndAShortOneAsksAtItsEnd) {
  EXPECT_TRUE(polls(0s, 0.5).empty());
  EXPECT_TRUE(polls(-1s, 0.5).empty());
  EXPECT_EQ(polls(10ms, 0.5), std::vector<long>{10});
}

}  // namespace
}  // namespace kiln::remote
