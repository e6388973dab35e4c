#include "cache/counters.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

#include "tests/support/in_threads.h"

namespace kiln::cache {
namespace {

TEST(Counters, EveryCounterHasANameOfItsOwn) {
  Counters counters;
  for (std::size_t i = 0; i < kCounterCount; ++i) counters.add(static_cast<Counter>(i));
  for (std::size_t i = 0; i < kCheckCount; ++i)
    counters.add_corrupt(static_cast<Check>(i));
  counters.add_publish_refused(ENOSPC);
  counters.add_publish_refused(100'000);
  const auto counts = counters.snapshot();
  EXPECT_EQ(counts.size(), kCounterCount + kCheckCount + 2);
  EXPECT_EQ(counts.at("publish_refused.ENOSPC"), 1U);
  EXPECT_EQ(counts.at("publish_refused.other"), 1U);
  EXPECT_FALSE(counts.contains("corrupt.unknown"));
  EXPECT_FALSE(counts.contains(""));
}

TEST(Counters, NamesOfRunTimeAreCountedFromAnyThread) {
  Counters counters;
  test::in_threads(4, [&] {
    for (int i = 0; i < 1000; ++i)
      counters.add_named("remote_requests.get.hit.h:" + std::to_string(i % 10), 2);
  });
  const auto counts = counters.snapshot();
  EXPECT_EQ(counts.size(), 10U);
  EXPECT_EQ(counts.at("remote_requests.get.hit.h:7"), 800U);
  EXPECT_EQ(counters.take_unwritten().at("remote_requests.get.hit.h:7"), 800U);
  EXPECT_TRUE(counters.take_unwritten().empty());
}

TEST(Counters, AreWrittenDownOnce) {
  Counters counters;
  counters.add(Counter::kHits, 3);
  EXPECT_EQ(counters.take_unwritten().at("hits"), 3U);
  EXPECT_TRUE(counters.take_unwritten().empty());
  counters.add(Counter::kHits);
  EXPECT_EQ(counters.take_unwritten().at("hits"), 1U);
  EXPECT_EQ(counters.get(Counter::kHits), 4U);
}

}  // namespace
}  // namespace kiln::cache
