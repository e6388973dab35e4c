// The executor by itself: what lanes give each other, atomics, memory and its limits.

#include "tests/support/cpu_kernel/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/cpu_kernel/cpu_kernel.h"
#include "tests/support/cpu_kernel/guarded_memory.h"

namespace kiln_cpu {
namespace {

using testing::HasSubstr;

constexpr unsigned kAll = 0xffffffffU;
constexpr std::array kOrders{Order::kAscending, Order::kDescending, Order::kShuffled};

kiln::Geometry of(unsigned threads, unsigned blocks = 1) {
  return {.grid = {blocks, 1, 1}, .block = {threads, 1, 1}};
}

/// "" or what went wrong.
std::string report(const kiln::Geometry& geometry, const LaunchOptions& options,
                   const std::function<void()>& kernel) {
  const auto done = launch(geometry, options, kernel);
  return done ? "" : done.error().message;
}

/// What each lane of a warp gets from `kernel(lane)`, the same in every order.
template <typename Kernel>
std::vector<unsigned> lanes(Kernel kernel) {
  std::vector<std::vector<unsigned>> all;
  for (const Order order : kOrders) {
    std::vector<unsigned> got(32);
    EXPECT_EQ(report(of(32), {.order = order},
                     [&] {
                       const auto lane = static_cast<unsigned>(thread());
                       got[lane] = kernel(lane);
                     }),
              "");
    all.push_back(got);
  }
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
  return all[0];
}

template <typename Expected>
std::vector<unsigned> each_lane(Expected expected) {
  std::vector<unsigned> all;
  for (unsigned lane = 0; lane < 32; ++lane) {
    all.push_back(expected(lane));
  }
  return all;
}

TEST(WarpCollectives, ShuffleValuesBetweenLanes) {
  const auto shuffled = [](Collective how, int argument) {
    return lanes(
        [=](unsigned lane) { return shuffle(how, kAll, lane * 10, argument); });
  };
  EXPECT_EQ(shuffled(Collective::kShuffleXor, 5),
            each_lane([](unsigned lane) { return (lane ^ 5) * 10; }));
  EXPECT_EQ(shuffled(Collective::kShuffle, 7), each_lane([](unsigned) { return 70; }));
  EXPECT_EQ(shuffled(Collective::kShuffleUp, 3),
            each_lane([](unsigned lane) { return (lane < 3 ? lane : lane - 3) * 10; }));
  EXPECT_EQ(shuffled(Collective::kShuffleDown, 3), each_lane([](unsigned lane) {
              return (lane > 28 ? lane : lane + 3) * 10;
            }));
}

TEST(WarpCollectives, KeepTheBitsOfFloats) {
  EXPECT_EQ(lanes([](unsigned lane) {
              const float value = 0.1F * static_cast<float>(lane);
              return std::bit_cast<unsigned>(
                  shuffle(Collective::kShuffleXor, kAll, value, 1));
            }),
            each_lane([](unsigned lane) {
              return std::bit_cast<unsigned>(0.1F * static_cast<float>(lane ^ 1));
            }));
}

TEST(WarpCollectives, Vote) {
  const auto vote = [](Collective what, unsigned bound) {
    return lanes(
        [=](unsigned lane) { return collective(what, kAll, lane < bound ? 5 : 0, 0); });
  };
  const auto all_lanes = [](unsigned value) {
    return each_lane([=](unsigned) { return value; });
  };
  EXPECT_EQ(vote(Collective::kBallot, 3), all_lanes(7));
  EXPECT_EQ(vote(Collective::kAny, 1), all_lanes(1));
  EXPECT_EQ(vote(Collective::kAny, 0), all_lanes(0));
  EXPECT_EQ(vote(Collective::kAll, 32), all_lanes(1));
  EXPECT_EQ(vote(Collective::kAll, 31), all_lanes(0));
}

TEST(WarpCollectives, MatchEqualValues) {
  EXPECT_EQ(lanes([](unsigned lane) {
              return collective(Collective::kMatchAny, kAll, lane % 2, 0);
            }),
            each_lane([](unsigned lane) {
              return lane % 2 == 0 ? 0x55555555U : 0xaaaaaaaaU;
            }));
}

TEST(WarpCollectives, ReduceOverTheLanesOfTheirMask) {
  const auto reduced = [](Collective how) {
    return lanes([=](unsigned lane) {
      const unsigned half = lane < 16 ? 0xffffU : 0xffff0000U;
      return reduce(how, half, lane + 1);
    });
  };
  const auto halves = [](unsigned low, unsigned high) {
    return each_lane([=](unsigned lane) { return lane < 16 ? low : high; });
  };
  EXPECT_EQ(reduced(Collective::kReduceAdd), halves(136, 392));
  EXPECT_EQ(reduced(Collective::kReduceMin), halves(1, 17));
  EXPECT_EQ(reduced(Collective::kReduceMax), halves(16, 32));
  EXPECT_EQ(reduced(Collective::kReduceAnd), halves(0, 0));
  EXPECT_EQ(reduced(Collective::kReduceOr), halves(31, 63));
  EXPECT_EQ(reduced(Collective::kReduceXor), halves(16, 48));
}

TEST(WarpCollectives, OrderSignedNumbersBySign) {
  EXPECT_EQ(lanes([](unsigned lane) {
              return static_cast<unsigned>(
                  reduce(Collective::kReduceMin, kAll, static_cast<int>(lane) - 5));
            }),
            each_lane([](unsigned) { return static_cast<unsigned>(-5); }));
}

TEST(WarpCollectives, OfDisjointMasksDoNotMeet) {
  EXPECT_EQ(lanes([](unsigned lane) {
              const unsigned mask = lane % 2 == 0 ? 0x55555555U : 0xaaaaaaaaU;
              const auto what = lane % 2 == 0 ? Collective::kBallot : Collective::kAny;
              return collective(what, mask, 1, 0);
            }),
            each_lane([](unsigned lane) { return lane % 2 == 0 ? 0x55555555U : 1U; }));
}

TEST(Barriers, CountThreadsThatHaveEnded) {
  for (const Order order : kOrders) {
    int passed = 0;
    EXPECT_EQ(report(of(96), {.order = order},
                     [&] {
                       if (thread() % 3 == 0) {
                         return;
                       }
                       sync_threads("kernel", 1);
                       ++passed;
                     }),
              "");
    EXPECT_EQ(passed, 64);
  }
}

TEST(Barriers, ThatDifferNameBothThreadsAndLines) {
  EXPECT_EQ(report(of(64), {}, [] { sync_threads("kernel", thread() < 40 ? 3 : 5); }),
            "block 0: divergent barriers: thread 0 waits at the barrier of kernel:3; "
            "thread 40 waits at the barrier of kernel:5");
}

TEST(Atomics, GiveTheOldValue) {
  int number = 5;
  EXPECT_EQ(report(of(1), {},
                   [&] {
                     EXPECT_EQ(atomic_add(&number, 2), 5);
                     EXPECT_EQ(atomic_max(&number, 3), 7);
                     EXPECT_EQ(atomic_min(&number, -3), 7);
                     EXPECT_EQ(atomic_exchange(&number, 9), -3);
                     EXPECT_EQ(atomic_compare_exchange(&number, 8, 1), 9);
                     EXPECT_EQ(atomic_compare_exchange(&number, 9, 1), 9);
                   }),
            "");
  EXPECT_EQ(number, 1);
}

TEST(Atomics, ReachSharedAndGlobalMemoryFromEveryThread) {
  for (const Order order : kOrders) {
    GuardedMemory memory("sums", 2 * sizeof(float), {});
    auto* const sums = reinterpret_cast<float*>(memory.data());
    EXPECT_EQ(report(of(64, 3), {.order = order},
                     [&] {
                       static constexpr SharedTag kTag{"sum"};
                       auto* const shared = static_cast<unsigned*>(
                           shared_array(&kTag, sizeof(unsigned)));
                       if (thread() == 0) {
                         *shared = 0;
                       }
                       sync_threads("kernel", 1);
                       atomic_add(shared, 1U);
                       sync_threads("kernel", 2);
                       if (thread() == 63) {
                         atomic_add(&sums[0], static_cast<float>(*shared));
                       }
                       atomic_max(&sums[1], static_cast<float>(thread()));
                     }),
              "");
    EXPECT_EQ(sums[0], 3 * 64);
    EXPECT_EQ(sums[1], 63);
  }
}

TEST(Launches, RunTheBlocksThatTheyAreAskedFor) {
  for (const Order order : kOrders) {
    std::vector<long long> ran;
    EXPECT_EQ(report(of(1, 4000000000U),
                     {.order = order, .first_block = 3999999990, .most_blocks = 3},
                     [&] { ran.push_back(block()); }),
              "");
    EXPECT_THAT(ran, testing::UnorderedElementsAre(3999999990, 3999999991, 3999999992));
  }
}

TEST(Launches, AreOnlyInX) {
  EXPECT_THAT(report({.grid = {1, 2, 1}}, {}, [] {}), HasSubstr("only grids"));
}

TEST(Launches, ReportAnAddressOfNoMemory) {
  EXPECT_THAT(report(of(32), {}, [] { *reinterpret_cast<volatile int*>(64) = 1; }),
              HasSubstr("block 0, thread 0 writes address 0x40"));
}

TEST(Launches, WithoutEndAreReportedThoughAnotherThreadGetsTheClocksSignal) {
  std::atomic<bool> has_begun = false;
  std::atomic<bool> has_ended = false;
  std::string said;
  std::thread launching([&] {
    said = report(of(1), {}, [&] {
      has_begun = true;
      volatile bool goes_on = true;
      while (goes_on) {
      }
    });
    has_ended = true;
  });
  while (!has_begun) std::this_thread::yield();
  while (!has_ended) {
    ASSERT_EQ(std::raise(SIGVTALRM), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  launching.join();
  EXPECT_EQ(said, "block 0, thread 0: runs without end");
}

// NOLINTNEXTLINE(misc-no-recursion)
[[gnu::noinline]] int deep(int levels) {
  volatile int kept = levels;
  return levels == 0 ? 0 : deep(levels - 1) + kept;
}

TEST(Launches, ReportAStackThatIsTooSmall) {
  volatile int levels = 1 << 20;
  EXPECT_THAT(report(of(1), {}, [&] { levels = deep(levels); }),
              HasSubstr("needs more stack"));
}

TEST(Memory, OfManyGigabytesTakesNoRoomUntilItIsTouched) {
  const std::size_t bytes = std::size_t{1} << 36;
  GuardedMemory memory("huge", bytes, {});
  memory.data()[bytes - 1] = std::byte{1};
  EXPECT_EQ(memory.data()[0], std::byte{0});
}

TEST(Memory, IsPlacedAsAsked) {
  const auto address = [](const GuardedMemory& m) {
    return reinterpret_cast<std::uintptr_t>(m.data());
  };
  for (const std::size_t bytes : {1U, 15U, 16U, 4096U, 5000U}) {
    for (const std::size_t past : {0U, 2U, 8U}) {
      EXPECT_EQ(address(GuardedMemory("m", bytes, {Side::kBegin, past})) % 16, past);
      EXPECT_EQ(address(GuardedMemory("m", bytes, {Side::kEnd, past})) % 16, past);
    }
    EXPECT_EQ(address(GuardedMemory("m", bytes, {Side::kBegin})) % 4096, 0U);
    EXPECT_EQ((address(GuardedMemory("m", bytes, {Side::kEnd})) + bytes) % 4096, 0U);
  }
}

TEST(Memory, OfNoBytesMayNotBeTouched) {
  GuardedMemory memory("nothing", 0, {});
  EXPECT_THAT(report(of(1), {}, [&] { *memory.data() = std::byte{1}; }),
              HasSubstr("writes byte 0 of nothing, which has 0 bytes"));
}

}  // namespace
}  // namespace kiln_cpu
