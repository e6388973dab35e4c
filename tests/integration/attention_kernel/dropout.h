// Which probabilities dropout keeps: templates/attention/problem.cu.mustache, written a
// second time, from its description.

#pragma once

#include <array>
#include <cstdint>

namespace kiln::attention_test {

/// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

struct DropoutNumbers {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  std::uint32_t dropped = 0;  // of 65536

  /// `head` counts those of all sequences.
  [[nodiscard]] bool keeps(std::int64_t head, std::int64_t query,
                           std::int64_t key) const {
    const auto j = static_cast<std::uint32_t>(key);
    const auto words =
        philox({static_cast<std::uint32_t>(query), j / 32 * 4 + j % 8 / 2,
                static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(offset)},
               {static_cast<std::uint32_t>(seed),
                static_cast<std::uint32_t>((seed ^ offset) >> 32)});
    return (words[j / 8 % 4] >> (j % 2 * 16) & 0xFFFF) >= dropped;
  }
};

}  // namespace kiln::attention_test
