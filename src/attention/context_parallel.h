// Context parallelism splits the sequence among ranks, so no rank computes the problem
// that the user named. expand() returns the problems that ranks do compute, step by
// step; decisions are made on these. It follows TransformerEngine.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attention/evaluate.h"
#include "attention/problem.h"
#include "kiln/result.h"

namespace kiln::attention {

enum class ContextMode : std::uint8_t {
  kP2p,        // keys and values go around a ring
  kA2a,        // heads are exchanged for sequence
  kAllGather,  // every rank has all keys and values
  kA2aP2p,     // kA2a within groups of neighbours, kP2p among the groups
};

struct ContextParallelism {
  ContextMode mode = ContextMode::kP2p;
  std::int64_t p2p_ranks = 1;  // for kP2p and kAllGather: all ranks
  std::int64_t a2a_ranks = 1;
  friend bool operator==(const ContextParallelism&,
                         const ContextParallelism&) = default;
};

/// "p2p:2", "a2a:4", "all_gather:8", "a2a+p2p:2x4" (2 for a2a, 4 for p2p; "a2a+p2p:8"
/// is the same). Errors: kInvalidArgument.
[[nodiscard]] Result<ContextParallelism> parse_context_parallelism(
    std::string_view text);
[[nodiscard]] std::string to_string(const ContextParallelism& parallelism);

/// "p2p", "a2a", "all_gather", "a2a+p2p".
[[nodiscard]] std::string_view to_string(ContextMode mode);

struct Expansion {
  /// Each distinct step of all ranks, once. Steps write statistics, which are needed to
  /// merge partial outputs.
  std::vector<Problem> steps;
  /// Why the problem cannot be split this way; if not empty, there are no steps.
  std::vector<Finding> refusals;
};

/// `problem` has passed validate(). Each rank gets two chunks of the sequence, so that
/// a causal mask gives all ranks equal work.
[[nodiscard]] Expansion expand(const Problem& problem,
                               const ContextParallelism& parallelism);

}  // namespace kiln::attention
