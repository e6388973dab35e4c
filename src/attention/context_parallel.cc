#include "attention/context_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "util/try.h"
#include "util/units.h"
#include "util/words.h"

namespace kiln::attention {
namespace {

constexpr std::array<std::string_view, 4> kModes{"p2p", "a2a", "all_gather", "a2a+p2p"};
constexpr std::uint64_t kMostRanks = 65536;

Result<std::int64_t> parse_ranks(std::string_view text) {
  const auto ranks = parse_number(text, {2, kMostRanks});
  if (!ranks)
    return refuse("ranks: " + ranks.error().message);
  return static_cast<std::int64_t>(*ranks);
}

Finding refusal(std::string id, std::string reason, std::string remedy) {
  return {.id = "cp." + std::move(id),
          .kind = RuleKind::kSupport,
          .reason = std::move(reason),
          .remedy = std::move(remedy)};
}

/// Refusals that do not depend on the mode, or only on its numbers of ranks.
void check_split(const Problem& problem, const ContextParallelism& parallelism,
                 std::vector<Finding>& refusals) {
  const std::int64_t chunks = 2 * parallelism.p2p_ranks * parallelism.a2a_ranks;
  if (problem.sq % chunks != 0 || problem.skv % chunks != 0)
    refusals.push_back(refusal(
        "length",
        fmt::format("{} ranks have two chunks each: lengths {} and {} are no multiples "
                    "of {}",
                    chunks / 2, problem.sq, problem.skv, chunks),
        fmt::format("pad the sequences to multiples of {}", chunks)));
  if (is_causal(problem.mask) && problem.sq != problem.skv)
    refusals.push_back(
        refusal("causal_lengths", "a causal problem is split only where sq is skv",
                "give query and key the same length, or use no context parallelism"));
  if (is_bottom_right(problem.mask))
    refusals.push_back(refusal(
        "bottom_right", "context parallelism takes no bottom-right mask",
        problem.sq == problem.skv ? "say causal, which is the same where sq is skv"
                                  : "use no context parallelism"));
  if (problem.heads % parallelism.a2a_ranks != 0 ||
      problem.kv_heads % parallelism.a2a_ranks != 0)
    refusals.push_back(refusal(
        "heads",
        fmt::format("a2a splits heads: {} of the query and {} of key and value are no "
                    "multiples of {} ranks",
                    problem.heads, problem.kv_heads, parallelism.a2a_ranks),
        "use p2p or all_gather, or fewer ranks"));
}

void check_mode(const Problem& problem, ContextMode mode,
                std::vector<Finding>& refusals) {
  const bool is_ring = mode == ContextMode::kP2p || mode == ContextMode::kA2aP2p;
  if (is_ring && has_window(problem))
    refusals.push_back(
        refusal("window", fmt::format("{} takes no sliding window", to_string(mode)),
                "use all_gather or a2a"));
  if (problem.bias_kind == Bias::kAlibi)
    refusals.push_back(refusal(
        "alibi", "ALiBi goes by places in the whole sequence, which no step knows",
        "use no context parallelism"));
  if (has_bias_tensor(problem) && mode != ContextMode::kP2p)
    refusals.push_back(
        refusal("bias", fmt::format("{} takes no bias", to_string(mode)), "use p2p"));
  const bool is_gathered = mode == ContextMode::kAllGather || mode == ContextMode::kA2a;
  if (is_gathered && is_padded(problem.mask) && problem.layout != Layout::kThd)
    refusals.push_back(
        refusal("padding",
                fmt::format("{} takes padding masks with thd alone", to_string(mode)),
                "use p2p, or pack the sequences as thd"));
}

/// One step: `problem` with these lengths and this mask.
Problem step(Problem problem, std::int64_t sq, std::int64_t skv, Mask mask) {
  problem.sq = sq;
  problem.skv = skv;
  problem.mask = mask;
  problem.stats = true;
  set_strides(problem);
  return problem;
}

/// The ring: a rank's own keys, then those of ranks before and after it.
std::vector<Problem> p2p_steps(const Problem& problem, std::int64_t ranks) {
  const std::int64_t sq = problem.sq / ranks;
  const std::int64_t skv = problem.skv / ranks;
  if (!is_causal(problem.mask))
    return {step(problem, sq, skv, problem.mask)};
  const Mask off_diagonal = is_padded(problem.mask) ? Mask::kPadding : Mask::kNone;
  return {step(problem, sq, skv, problem.mask),
          step(problem, sq, skv / 2, off_diagonal),
          step(problem, sq / 2, skv, off_diagonal)};
}

/// Each chunk against all keys up to its end: a causal mask becomes a bottom-right one.
std::vector<Problem> all_gather_steps(const Problem& problem, std::int64_t ranks) {
  const std::int64_t chunks = 2 * ranks;
  const std::int64_t sq = problem.sq / chunks;
  if (!is_causal(problem.mask))
    return {step(problem, sq, problem.skv, problem.mask)};
  const Mask mask = is_padded(problem.mask) ? Mask::kPaddingCausalBottomRight
                                            : Mask::kCausalBottomRight;
  std::vector<Problem> steps;
  for (std::int64_t chunk = 1; chunk <= chunks; ++chunk)
    steps.push_back(step(problem, sq, chunk * (problem.skv / chunks), mask));
  return steps;
}

}  // namespace

std::string_view to_string(ContextMode mode) {
  return kModes[static_cast<std::size_t>(mode)];
}

std::string to_string(const ContextParallelism& parallelism) {
  const std::string_view mode = to_string(parallelism.mode);
  if (parallelism.mode == ContextMode::kA2aP2p)
    return fmt::format("{}:{}x{}", mode, parallelism.a2a_ranks, parallelism.p2p_ranks);
  return fmt::format("{}:{}", mode, parallelism.a2a_ranks * parallelism.p2p_ranks);
}

Result<ContextParallelism> parse_context_parallelism(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos)
    return refuse("'{}' is not MODE:RANKS, such as all_gather:2", text);
  ContextParallelism parallelism{.mode = static_cast<ContextMode>(KILN_TRY(
                                     position_of(text.substr(0, colon), kModes)))};
  const std::string_view ranks = text.substr(colon + 1);
  if (parallelism.mode == ContextMode::kA2aP2p) {
    const std::size_t cross = ranks.find('x');
    if (cross != std::string_view::npos) {
      parallelism.a2a_ranks = KILN_TRY(parse_ranks(ranks.substr(0, cross)));
      parallelism.p2p_ranks = KILN_TRY(parse_ranks(ranks.substr(cross + 1)));
      return parallelism;
    }
    const std::int64_t all = KILN_TRY(parse_ranks(ranks));
    if (all % 2 != 0 || all < 4)
      return refuse("a2a+p2p has 2 ranks or more for each: not {}", all);
    parallelism.a2a_ranks = 2;
    parallelism.p2p_ranks = all / 2;
    return parallelism;
  }
  const std::int64_t all = KILN_TRY(parse_ranks(ranks));
  (parallelism.mode == ContextMode::kA2a ? parallelism.a2a_ranks
                                         : parallelism.p2p_ranks) = all;
  return parallelism;
}

Expansion expand(const Problem& problem, const ContextParallelism& parallelism) {
  Expansion expansion;
  check_split(problem, parallelism, expansion.refusals);
  check_mode(problem, parallelism.mode, expansion.refusals);
  if (!expansion.refusals.empty())
    return expansion;
  Problem local = problem;
  local.heads /= parallelism.a2a_ranks;
  local.kv_heads /= parallelism.a2a_ranks;
  switch (parallelism.mode) {
    case ContextMode::kP2p:
    case ContextMode::kA2aP2p:
      expansion.steps = p2p_steps(local, parallelism.p2p_ranks);
      break;
    case ContextMode::kAllGather:
      expansion.steps = all_gather_steps(local, parallelism.p2p_ranks);
      break;
    case ContextMode::kA2a:
      expansion.steps = {step(local, local.sq, local.skv, local.mask)};
      break;
  }
  return expansion;
}

}  // namespace kiln::attention
