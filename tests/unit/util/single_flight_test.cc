#include "util/single_flight.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <new>
#include <thread>
#include <tuple>

#include "tests/support/in_threads.h"

namespace kiln {
namespace {

using Flights = SingleFlight<int, int>;

TEST(SingleFlightTest, CallersOfOneKeyAtOnceShareOneComputation) {
  constexpr int kThreads = 16;
  Flights flights;
  std::atomic<int> computed = 0;
  std::atomic<int> leaders = 0;
  std::latch all_here(kThreads);
  test::in_threads(kThreads, [&] {
    all_here.arrive_and_wait();
    const auto outcome = flights.run(1, {}, [&]() -> Result<int> {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return ++computed;
    });
    EXPECT_EQ(outcome.result.value(), 1);
    leaders += outcome.computed ? 1 : 0;
  });
  EXPECT_EQ(computed, 1);
  EXPECT_EQ(leaders, 1);
}

TEST(SingleFlightTest, AFailureReachesEveryFollowerAndIsNotSticky) {
  Flights flights;
  const auto failing = flights.run(
      1, {}, [] { return Result<int>(fail(ErrorCode::kTimeout, "too slow")); });
  EXPECT_EQ(failing.result.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(flights.run(1, {}, [] { return Result<int>(7); }).result.value(), 7);
}

TEST(SingleFlightTest, KeysDoNotWaitForEachOther) {
  Flights flights;
  const auto outer = flights.run(1, {}, [&]() -> Result<int> {
    return flights.run(2, {}, [] { return Result<int>(5); }).result;
  });
  EXPECT_EQ(outer.result.value(), 5);
}

TEST(SingleFlightTest, AFollowerOfACancelledLeaderComputesItself) {
  Flights flights;
  std::latch leader_runs(1);
  std::latch follower_waits(1);
  std::thread leader([&] {
    const auto outcome = flights.run(1, {}, [&]() -> Result<int> {
      leader_runs.count_down();
      follower_waits.wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return fail(ErrorCode::kCancelled, "stopped");
    });
    EXPECT_EQ(outcome.result.error().code, ErrorCode::kCancelled);
  });
  leader_runs.wait();
  follower_waits.count_down();
  EXPECT_EQ(flights.run(1, {}, [] { return Result<int>(9); }).result.value(), 9);
  leader.join();
}

TEST(SingleFlightTest, ALeaderThatThrowsLeavesNobodyWaiting) {
  Flights flights;
  std::latch leading(1);
  std::latch joined(1);
  std::thread leader([&] {
    EXPECT_THROW(std::ignore = flights.run(1, {},
                                           [&]() -> Result<int> {
                                             leading.count_down();
                                             joined.wait();
                                             std::this_thread::sleep_for(
                                                 std::chrono::milliseconds(50));
                                             throw std::bad_alloc();
                                           }),
                 std::bad_alloc);
  });
  leading.wait();
  joined.count_down();
  const auto follower = flights.run(1, {}, []() -> Result<int> { return 7; });
  leader.join();
  EXPECT_EQ(follower.result.value(), 7);
  EXPECT_EQ(flights.run(1, {}, []() -> Result<int> { return 8; }).result.value(), 8);
}

TEST(SingleFlightTest, AFollowerLeavesWhenItsOwnStopIsRequested) {
  Flights flights;
  std::latch leader_runs(1);
  std::latch done(1);
  std::thread leader([&] {
    std::ignore = flights.run(1, {}, [&]() -> Result<int> {
      leader_runs.count_down();
      done.wait();
      return 1;
    });
  });
  leader_runs.wait();
  std::stop_source stop;
  stop.request_stop();
  const auto outcome = flights.run(1, stop.get_token(), [] { return Result<int>(2); });
  EXPECT_EQ(outcome.result.error().code, ErrorCode::kCancelled);
  done.count_down();
  leader.join();
}

}  // namespace
}  // namespace kiln
