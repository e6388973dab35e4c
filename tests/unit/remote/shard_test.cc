// Shards: every key has one, all machines agree on it, and the shares are even.

#include "remote/shard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace kiln::remote {
namespace {

Digest key(int number) {
  return Digest::of(as_bytes("kernel " + std::to_string(number)));
}

TEST(Shard, OfAKeyNeverChangesBetweenVersions) {
  // Computed once; machines of one job may have different versions of Kiln.
  std::vector<std::uint32_t> shards;
  for (int i = 0; i < 12; ++i) shards.push_back(shard_of(key(i), 7));
  EXPECT_EQ(shards, (std::vector<std::uint32_t>{1, 3, 4, 1, 3, 6, 5, 3, 5, 4, 4, 0}));
  EXPECT_EQ(shard_of(key(0), 1000), 762U);
  EXPECT_EQ(shard_of(Digest(), 3), 2U);
}

TEST(Shard, ExactlyOneOwnsEachKey) {
  for (const std::uint32_t count : {1U, 2U, 3U, 8U, 31U}) {
    for (int i = 0; i < 200; ++i) {
      int owners = 0;
      for (std::uint32_t index = 0; index < count; ++index)
        owners += Shard{index, count}.owns(key(i)) ? 1 : 0;
      EXPECT_EQ(owners, 1);
    }
  }
}

TEST(Shard, SharesAreEvenWithinFourStandardDeviations) {
  constexpr int kKeys = 20000;
  for (const std::uint32_t count : {2U, 8U, 100U}) {
    std::map<std::uint32_t, int> shares;
    for (int i = 0; i < kKeys; ++i) ++shares[shard_of(key(i), count)];
    ASSERT_EQ(shares.size(), count);
    const double mean = static_cast<double>(kKeys) / count;
    const double allowed = 4 * std::sqrt(mean);
    for (const auto& [shard, share] : shares)
      EXPECT_NEAR(share, mean, allowed) << shard;
  }
}

TEST(Shard, OneShardMoreTakesItsShareAndMovesNoOtherKey) {
  constexpr int kKeys = 4000;
  int moved = 0;
  for (int i = 0; i < kKeys; ++i) {
    const std::uint32_t before = shard_of(key(i), 9);
    const std::uint32_t after = shard_of(key(i), 10);
    if (before == after)
      continue;
    ++moved;
    EXPECT_EQ(after, 9U);
  }
  EXPECT_NEAR(moved, kKeys / 10, 80);
}

}  // namespace
}  // namespace kiln::remote
