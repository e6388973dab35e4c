#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/in_threads.h"
#include "util/striped.h"

namespace kiln {
namespace {

TEST(StripedPointer, KeepsItsObjectUntilTheLastPointerOfAnyThreadIsGone) {
  auto object = std::make_shared<const int>(7);
  const std::weak_ptr<const int> seen = object;
  std::optional<StripedPointer<const int>> striped(std::move(object));
  std::vector<std::shared_ptr<const int>> taken(2 * kStripes);
  test::in_threads(taken.size(), [&](std::size_t i) { taken[i] = striped->get(); });
  striped.reset();
  for (auto& pointer : taken) {
    ASSERT_FALSE(seen.expired());
    EXPECT_EQ(*pointer, 7);
    pointer.reset();
  }
  EXPECT_TRUE(seen.expired());
}

TEST(StripedPointer, CountsOnALineOfItsOwnForEachOfSixteenThreads) {
  const StripedPointer<const int> striped(std::make_shared<const int>(7));
  std::vector<std::shared_ptr<const int>> taken(kStripes);
  for (std::size_t i = 0; i < kStripes; ++i) {
    // One after the other, so that each takes the next stripe.
    std::thread([&, i] { taken[i] = striped.get(); }).join();
  }
  for (const auto& pointer : taken) EXPECT_EQ(pointer.use_count(), 2);
}

}  // namespace
}  // namespace kiln
