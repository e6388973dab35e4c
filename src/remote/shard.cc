#include "remote/shard.h"

namespace kiln::remote {
namespace {

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): each bit of the result
/// depends on each bit of `x`.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

}  // namespace

std::uint32_t shard_of(const Digest& key, std::uint32_t count) {
  const std::uint64_t hash = std::hash<Digest>()(key);  // its first eight bytes
  std::uint32_t heaviest = 0;
  std::uint64_t most = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t weight = mix(hash ^ mix(std::uint64_t{i} + 1));
    if (weight > most) {
      most = weight;
      heaviest = i;
    }
  }
  return heaviest;
}

}  // namespace kiln::remote
