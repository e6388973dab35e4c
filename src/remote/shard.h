// Which part of a fleet builds a key. Every machine gives the same answer without
// asking another: it is in the key and the number of shards alone.

#pragma once

#include <cstdint>

#include "codec/digest.h"

namespace kiln::remote {

inline constexpr std::uint32_t kMostShards = 65536;

/// Below `count`, which is 1 to kMostShards. Rendezvous hashing (Thaler, Ravishankar
/// 1998): each shard has a weight for the key, and the heaviest owns it, so that with
/// one shard more only the keys move that this one gets. Machines with different
/// versions of Kiln share the work by this function: it never changes. Costs `count`
/// short hashes.
[[nodiscard]] std::uint32_t shard_of(const Digest& key, std::uint32_t count);

/// Thread safety: a value.
struct Shard {
  std::uint32_t index = 0;  // below count
  std::uint32_t count = 1;  // 1 to kMostShards

  [[nodiscard]] bool owns(const Digest& key) const {
    return shard_of(key, count) == index;
  }
};

}  // namespace kiln::remote
