// Context parallelism end to end: the steps that attention::expand() names, run one by
// one on what each rank has, and merged by their log-sum-exps, are the whole. In bshd
// and without windows: other layouts and masks of a step have tests of their own.

#include "attention/context_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tests/integration/attention_kernel/check.h"

namespace kiln::attention_test {
namespace {

using test::Bf16;

/// A step as a rank computes it: which rows and heads of the whole, with which mask.
struct Step {
  std::vector<I64> queries{};
  std::vector<I64> keys{};
  I64 first_head = 0;
  I64 first_kv_head = 0;
  I64 heads = 0;
  I64 kv_heads = 0;
  Mask mask = Mask::kNone;
};

std::vector<I64> range(I64 first, I64 count) {
  std::vector<I64> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

std::vector<I64> joined(std::vector<I64> a, const std::vector<I64>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The ring among `ranks`, for some of the heads.
std::vector<Step> ring(const Problem& whole, I64 ranks, Step heads) {
  const I64 chunk = whole.sq / (2 * ranks);
  const auto rows = [&](I64 number) { return range(number * chunk, chunk); };
  const auto of_rank = [&](I64 rank) {
    return joined(rows(rank), rows(2 * ranks - 1 - rank));
  };
  const bool is_causal = whole.mask == Mask::kCausal;
  std::vector<Step> steps;
  for (I64 rank = 0; rank < ranks; ++rank) {
    for (I64 from = 0; from < ranks; ++from) {
      Step step = heads;
      step.queries = of_rank(rank);
      step.keys = of_rank(from);
      step.mask = from == rank ? whole.mask : Mask::kNone;
      if (is_causal && from < rank)
        step.keys = rows(from);
      if (is_causal && from > rank)
        step.queries = rows(2 * ranks - 1 - rank);
      steps.push_back(step);
    }
  }
  return steps;
}

std::vector<Step> steps_of(const Problem& whole,
                           const attention::ContextParallelism& by) {
  std::vector<Step> steps;
  for (I64 part = 0; part < by.a2a_ranks; ++part) {
    const I64 heads = whole.heads / by.a2a_ranks;
    const I64 kv_heads = whole.kv_heads / by.a2a_ranks;
    Step some{.first_head = part * heads,
              .first_kv_head = part * kv_heads,
              .heads = heads,
              .kv_heads = kv_heads,
              .mask = whole.mask};
    if (by.mode == attention::ContextMode::kAllGather) {
      const I64 chunk = whole.sq / (2 * by.p2p_ranks);
      for (I64 number = 0; number < 2 * by.p2p_ranks; ++number) {
        Step step = some;
        step.queries = range(number * chunk, chunk);
        const bool is_causal = whole.mask == Mask::kCausal;
        step.keys = range(0, is_causal ? (number + 1) * chunk : whole.skv);
        step.mask = is_causal ? Mask::kCausalBottomRight : Mask::kNone;
        steps.push_back(step);
      }
    } else if (by.mode == attention::ContextMode::kA2a) {
      some.queries = range(0, whole.sq);
      some.keys = range(0, whole.skv);
      steps.push_back(some);
    } else {
      const auto more = ring(whole, by.p2p_ranks, some);
      steps.insert(steps.end(), more.begin(), more.end());
    }
  }
  return steps;
}

/// Results in double, [heads][rows][dim], as the whole has them.
struct Merged {
  std::vector<Matrix> o, dq, dk, dv;
  std::vector<std::vector<double>> lse;
};

class ContextParallel : public testing::TestWithParam<std::string> {
 protected:
  using Of = Call<Bf16>;

  static Problem problem_of_step(const Problem& whole, const Step& step) {
    Problem problem = whole;
    problem.sq = static_cast<I64>(step.queries.size());
    problem.skv = static_cast<I64>(step.keys.size());
    problem.heads = step.heads;
    problem.kv_heads = step.kv_heads;
    problem.mask = step.mask;
    problem.stats = true;
    set_strides(problem);
    return problem;
  }

  /// Calls `visit` with each element's place in the step's tensor and in the whole's.
  template <typename Visit>
  static void each(const Of& part, const Strides& of_part, const Of& whole,
                   const Strides& of_whole, const std::vector<I64>& rows, I64 heads,
                   I64 first_head, I64 dim, const Visit& visit) {
    for (I64 h = 0; h < heads; ++h) {
      for (std::size_t i = 0; i < rows.size(); ++i) {
        for (I64 d = 0; d < dim; ++d)
          visit(part.at(of_part, 0, h, static_cast<I64>(i), d, true),
                whole.at(of_whole, 0, first_head + h, rows[i], d, true), h + first_head,
                rows[i], d);
      }
    }
  }

  static std::unique_ptr<Of> call_of(Of& whole, const Step& step) {
    auto part = std::make_unique<Of>(problem_of_step(whole.problem, step));
    const Problem& p = part->problem;
    const Problem& w = whole.problem;
    const auto fill = [&](Tensor<Bf16>& to, const Tensor<Bf16>& from, const Strides& a,
                          const Strides& b, bool is_query, I64 dim) {
      each(*part, a, whole, b, is_query ? step.queries : step.keys,
           is_query ? step.heads : step.kv_heads,
           is_query ? step.first_head : step.first_kv_head, dim,
           [&](std::size_t at, std::size_t in, I64, I64, I64) { to[at] = from[in]; });
    };
    fill(part->q, whole.q, p.q, w.q, true, w.dqk);
    fill(part->k, whole.k, p.k, w.k, false, w.dqk);
    fill(part->v, whole.v, p.v, w.v, false, w.dv);
    fill(part->grad_o, whole.grad_o, p.o, w.o, true, w.dv);
    return part;
  }

  /// Every step forward, merged; then every step backward with what was merged, added.
  static Merged run(Of& whole, const std::vector<Step>& steps) {
    const Problem& w = whole.problem;
    const auto heads = static_cast<std::size_t>(w.heads);
    const auto rows = static_cast<std::size_t>(w.sq);
    const auto dim = static_cast<std::size_t>(w.dv);
    Merged merged;
    merged.o.assign(heads, zeros(rows, dim));
    merged.dq.assign(heads, zeros(rows, static_cast<std::size_t>(w.dqk)));
    merged.dk.assign(static_cast<std::size_t>(w.kv_heads),
                     zeros(rows, static_cast<std::size_t>(w.dqk)));
    merged.dv.assign(static_cast<std::size_t>(w.kv_heads), zeros(rows, dim));
    merged.lse.assign(heads, std::vector<double>(rows, -test::kInfinity));
    std::vector<std::unique_ptr<Of>> parts;
    for (const Step& step : steps) {
      parts.push_back(call_of(whole, step));
      Of& part = *parts.back();
      part.run(Pass::kForward);
      for (I64 h = 0; h < step.heads; ++h) {
        for (std::size_t i = 0; i < step.queries.size(); ++i) {
          const auto head = static_cast<std::size_t>(step.first_head + h);
          const auto row = static_cast<std::size_t>(step.queries[i]);
          const double before = merged.lse[head][row];
          const double more =
              part.stats[static_cast<std::size_t>(h) * step.queries.size() + i].bits;
          const double top = std::max(before, more);
          const double both =
              top + std::log(std::exp(before - top) + std::exp(more - top));
          for (std::size_t d = 0; d < dim; ++d) {
            const double value =
                part.o[part.at(part.problem.o, 0, h, static_cast<I64>(i),
                               static_cast<I64>(d), true)]
                    .value();
            merged.o[head][row][d] = merged.o[head][row][d] * std::exp(before - both) +
                                     value * std::exp(more - both);
          }
          merged.lse[head][row] = both;
        }
      }
    }
    for (std::size_t number = 0; number < steps.size(); ++number)
      add_gradients(whole, steps[number], *parts[number], merged);
    return merged;
  }

  static void add_gradients(Of& whole, const Step& step, Of& part, Merged& merged) {
    const Problem& w = whole.problem;
    each(part, part.problem.o, whole, w.o, step.queries, step.heads, step.first_head,
         w.dv, [&](std::size_t at, std::size_t, I64 h, I64 i, I64 d) {
           part.o[at] = Bf16::from(static_cast<float>(merged.o[static_cast<std::size_t>(
               h)][static_cast<std::size_t>(i)][static_cast<std::size_t>(d)]));
         });
    for (I64 h = 0; h < step.heads; ++h) {
      for (std::size_t i = 0; i < step.queries.size(); ++i)
        part.stats[static_cast<std::size_t>(h) * step.queries.size() + i].bits =
            static_cast<float>(merged.lse[static_cast<std::size_t>(step.first_head + h)]
                                         [static_cast<std::size_t>(step.queries[i])]);
    }
    part.run(Pass::kBackward);
    const auto add = [&](std::vector<Matrix>& to, const Tensor<Bf16>& from,
                         const Strides& strides, const Strides& of_whole, bool is_query,
                         I64 dim) {
      each(part, strides, whole, of_whole, is_query ? step.queries : step.keys,
           is_query ? step.heads : step.kv_heads,
           is_query ? step.first_head : step.first_kv_head, dim,
           [&](std::size_t at, std::size_t, I64 h, I64 i, I64 d) {
             to[static_cast<std::size_t>(h)][static_cast<std::size_t>(i)]
               [static_cast<std::size_t>(d)] += from[at].value();
           });
    };
    add(merged.dq, part.grad_q, part.problem.q, w.q, true, w.dqk);
    add(merged.dk, part.grad_k, part.problem.k, w.k, false, w.dqk);
    add(merged.dv, part.grad_v, part.problem.v, w.v, false, w.dv);
  }

  static double largest_difference(const Of& whole, const Tensor<Bf16>& tensor,
                                   const Strides& strides, bool is_query,
                                   const std::vector<Matrix>& to) {
    double largest = 0;
    const auto dim = static_cast<I64>(to[0][0].size());
    whole.each(strides, is_query, dim, [&](std::size_t at, I64, I64 h, I64 i, I64 d) {
      const double want = to[static_cast<std::size_t>(h)][static_cast<std::size_t>(i)]
                            [static_cast<std::size_t>(d)];
      largest = std::max(largest, std::fabs(want - tensor[at].value()));
    });
    return largest;
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, ContextParallel,
                         testing::Values("p2p:2", "p2p:4", "a2a:2", "all_gather:2",
                                         "all_gather:4", "a2a+p2p:2x2"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::ranges::replace_if(
                               name, [](char c) { return c == ':' || c == '+'; }, '_');
                           return name;
                         });

TEST_P(ContextParallel, StepsMergedAreTheWhole) {
  const auto by = attention::parse_context_parallelism(GetParam()).value();
  for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
    SCOPED_TRACE(word_of(mask));
    Call<Bf16> whole(
        problem_of(ops::DType::kBf16, {1, 4, 96, 64}, {1, 2, 96, 64}, {.mask = mask}));
    whole.run_both();
    Problem asked = whole.problem;
    asked.pass = Pass::kForward;
    const attention::Expansion expected = attention::expand(asked, by);
    ASSERT_TRUE(expected.refusals.empty());
    const std::vector<Step> steps = steps_of(whole.problem, by);
    for (const Step& step : steps) {
      Problem named = problem_of_step(asked, step);
      EXPECT_NE(std::ranges::find(expected.steps, named), expected.steps.end())
          << to_string(named) << " is none of the steps that expand() names";
    }
    const Merged merged = run(whole, steps);
    const Problem& w = whole.problem;
    // Rounded to 8 bits in every step, and once in the whole.
    EXPECT_LE(largest_difference(whole, whole.o, w.o, true, merged.o), 0x1p-6);
    EXPECT_LE(largest_difference(whole, whole.grad_q, w.q, true, merged.dq), 0x1p-4);
    EXPECT_LE(largest_difference(whole, whole.grad_k, w.k, false, merged.dk), 0x1p-4);
    EXPECT_LE(largest_difference(whole, whole.grad_v, w.v, false, merged.dv), 0x1p-4);
    for (std::size_t h = 0; h < merged.lse.size(); ++h) {
      for (std::size_t i = 0; i < merged.lse[h].size(); ++i)
        EXPECT_NEAR(merged.lse[h][i], whole.stats[h * merged.lse[h].size() + i].bits,
                    1e-5);
    }
  }
}

}  // namespace
}  // namespace kiln::attention_test
