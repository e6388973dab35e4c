// A fleet that starts: nodes of several ranks, each of which wants the same kernels.
// The rules are those of the product (src/remote); machines, compiler and server are
// modelled. docs/fleet.md says what came out.

#pragma once

#include <cstdint>
#include <vector>

#include "codec/digest.h"
#include "tests/simulation/server.h"

namespace kiln::simulation {

enum class Way : std::uint8_t {
  kNaive,        // every node builds everything
  kSharedFiles,  // one root on a file server, no locks
  kObjects,      // a remote, asked kernel by kernel, the build beside it
  kPack,         // one pack a node, from the server
  kBroadcast,    // one pack, from node to node down a tree, as sbcast sends it
  kShardsPack,   // each node builds its shard; the first packs; all get the pack
};

struct Parameters {
  Way way = Way::kNaive;
  std::uint32_t nodes = 1000;
  std::uint32_t ranks = 8;  // a node
  std::uint32_t kernels = 400;
  std::uint64_t object_bytes = 30'000;
  double compression = 4.5;  // of a pack
  Duration build = std::chrono::milliseconds(150);
  double build_spread = 0.2;  // evenly, either way
  std::uint32_t jobs = 2;     // builds at a time, a node; and gets of a rank
  Duration hit = std::chrono::microseconds(100);
  Duration wait = std::chrono::milliseconds(250);  // T_h
  Duration poll = std::chrono::seconds(60);        // --wait
  Duration skew{};                                 // ranks start within it
  bool is_warm = true;                             // the server has it all
  bool pushes = false;
  double dead_shards = 0;
  std::uint32_t tree_width = 50;        // Slurm's
  std::uint32_t operations_a_file = 4;  // of a file server, to read one object
  ServerParameters server;
  std::uint64_t seed = 1;
};

struct Outcome {
  double first_kernel_s = 0;  // until the last rank has one
  double last_rank_s = 0;     // from the start of the fleet until all are warm
  double worst_rank_s = 0;    // from a rank's own start
  std::uint64_t builds = 0;
  std::uint64_t wasted = 0;  // of a kernel that somebody had built or was building
  std::uint64_t requests = 0;
  std::uint64_t connections = 0;
  std::uint64_t dropped_uploads = 0;
};

/// Of the kernels.
[[nodiscard]] std::vector<Digest> keys_of(const Parameters& parameters);

[[nodiscard]] Outcome run(const Parameters& parameters);

/// What the formulas of docs/fleet.md foresee for `last_rank_s`; the latest, if the
/// server dies; 0 if there is no formula.
[[nodiscard]] double foreseen_s(const Parameters& parameters);

/// The same for `first_kernel_s`; there is a formula where a pack brings the kernels.
[[nodiscard]] double foreseen_first_kernel_s(const Parameters& parameters);

}  // namespace kiln::simulation
