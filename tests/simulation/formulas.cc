// What pencil and paper say of a fleet; docs/fleet.md has the formulas.

#include <algorithm>
#include <cmath>
#include <string>

#include "remote/breaker.h"
#include "remote/pacing.h"
#include "remote/shard.h"
#include "tests/simulation/fleet.h"

namespace kiln::simulation {
namespace {

std::uint32_t largest_shard(const Parameters& is) {
  std::vector<std::uint32_t> shards(is.nodes);
  for (const Digest& key : keys_of(is)) ++shards[remote::shard_of(key, is.nodes)];
  return *std::ranges::max_element(shards);
}

/// When a poll that began at 0 looks for the first time after `when`, on average.
double next_poll_s(double when) {
  remote::Poll poll(TimePoint{} + std::chrono::hours(1), [] { return 0.5; });
  TimePoint look{};
  while (in_seconds(look - TimePoint{}) < when) look = *poll.next(look);
  return in_seconds(look - TimePoint{});
}

}  // namespace

std::vector<Digest> keys_of(const Parameters& parameters) {
  std::vector<Digest> keys;
  for (std::uint32_t i = 0; i < parameters.kernels; ++i)
    keys.push_back(Digest::of(as_bytes("kernel " + std::to_string(i))));
  return keys;
}

double foreseen_s(const Parameters& is) {
  const double kernels = is.kernels;
  const double build = in_seconds(is.build);
  const double all = is.nodes * kernels;
  const double pack = kernels * static_cast<double>(is.object_bytes) / is.compression /
                      is.server.bytes_per_second;
  const double rate = is.server.requests_per_second;
  const double naive = kernels * build / is.jobs;
  const double reads = kernels * in_seconds(is.hit);
  if (is.server.death != Death::kNever && is.way == Way::kShardsPack)
    return 0;
  if (is.server.death != Death::kNever)
    return naive + remote::Breaker::kFailuresToOpen * in_seconds(is.wait);
  switch (is.way) {
    case Way::kNaive:
      return naive;
    case Way::kSharedFiles:
      return std::max(is.is_warm ? 0 : naive, all * is.operations_a_file / rate);
    case Way::kObjects:
      if (!is.is_warm)  // a look-up that finds nothing, and a build; HEAD and PUT
        return std::max(naive, all * (is.pushes ? 2 : 1) / rate);
      return std::max(
          {all * static_cast<double>(is.object_bytes) / is.server.bytes_per_second,
           all / rate, in_seconds(is.skew)});
    case Way::kPack:
      return is.nodes * pack + reads;
    case Way::kBroadcast: {
      std::uint64_t sends = 0;  // one after the other, on the longest way down the tree
      std::uint64_t above = 1;  // nodes of a level
      for (std::uint64_t left = is.nodes - 1; left > 0;) {
        const std::uint64_t level = std::min(left, above * is.tree_width);
        sends += (level + above - 1) / above;
        left -= level;
        above = level;
      }
      return static_cast<double>(sends) * pack + reads;
    }
    case Way::kShardsPack: {
      const double shard = std::ceil(1.0 * largest_shard(is) / is.jobs) * build;
      const double lost = is.dead_shards * naive;
      // The pack is made at the first look after the last shard, or at the end.
      const double made = lost > 0 ? in_seconds(is.poll) + lost : next_poll_s(shard);
      return made + is.nodes * pack + reads;
    }
  }
  return 0;
}

double foreseen_first_kernel_s(const Parameters& is) {
  const double all = foreseen_s(is);
  if (is.way < Way::kPack || all == 0)
    return 0;
  // One connects and one asks; on the way of a pack alone they may be most of it.
  const double round_trips = 2 * in_seconds(is.server.round_trip);
  return all - (is.kernels - 1) * in_seconds(is.hit) + round_trips;
}

}  // namespace kiln::simulation
