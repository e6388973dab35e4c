// Context parallelism: the sequence is split among ranks, and none of them computes the
// problem that the user named. Here that problem becomes those that are computed, step
// by step, on some rank; decisions are taken on them. As TransformerEngine does it.

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
  kA2aP2p,     // kA2a among neighbours, kP2p among such groups
};

struct ContextParallelism {
  ContextMode mode = ContextMode::kP2p;
  std::int64_t p2p_ranks = 1;  // of kP2p and kAllGather: all of them
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
  /// Each once, over all ranks. They keep statistics, for partial outputs are merged.
  std::vector<Problem> steps;
  /// Why this problem is not split this way; then there are no steps.
  std::vector<Finding> refusals;
};

/// `problem` has passed validate(). Sequences are split into two chunks a rank, so that
/// with a causal mask all ranks have as much to do.
[[nodiscard]] Expansion expand(const Problem& problem,
                               const ContextParallelism& parallelism);

}  // namespace kiln::attention
