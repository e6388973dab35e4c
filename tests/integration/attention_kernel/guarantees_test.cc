// What every attention kernel keeps: the same bits in every order of its threads and
// with every content of shared memory, no access out of bounds.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/integration/attention_kernel/check.h"
#include "tests/support/print_name.h"

namespace kiln::attention_test {
namespace {

using test::PrintTo;

struct Kind {
  const char* name;
  Problem problem;
  ComputeCapability capability{9, 0};
  std::vector<std::int32_t> lengths_q{};
  std::vector<std::int32_t> lengths_kv{};
};

// NOLINTNEXTLINE(readability-function-size): the last two are rarely given
Kind kind(const char* name, ops::DType dtype, I64 dqk, I64 dv,
          ops::AttentionProblem problem = {}, ComputeCapability capability = {9, 0}) {
  problem.heads = 2;
  problem.kv_heads = 1;
  problem.sq = 70;
  problem.skv = 90;
  problem.dqk = dqk;
  problem.dv = dv;
  problem.mask = Mask::kCausalBottomRight;
  Kind made{name, problem_of(dtype, problem), capability};
  made.problem.bias_gradient = problem.bias_kind == Bias::kPostScale;
  return made;
}

/// Of sequences with lengths of their own, an empty one among them.
Kind of_lengths(const char* name, Layout layout) {
  Kind made{.name = name,
            .problem =
                problem_of(ops::DType::kBf16, {3, 2, 70, 64}, {3, 1, 90, 64},
                           {.layout = layout, .mask = Mask::kPaddingCausalBottomRight}),
            .lengths_q = {70, 0, 33},
            .lengths_kv = {20, 90, 64}};
  return made;
}

class AttentionGuarantees : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(
    Kernels, AttentionGuarantees,
    testing::Values(
        kind("bf16_64", ops::DType::kBf16, 64, 64),
        kind("f16_128", ops::DType::kF16, 128, 128),
        kind("f16_256_small", ops::DType::kF16, 256, 256, {}, {7, 5}),
        kind("bf16_192_128", ops::DType::kBf16, 192, 128),
        kind("bf16_alibi", ops::DType::kBf16, 64, 64, {.bias_kind = Bias::kAlibi}),
        kind("bf16_bias", ops::DType::kBf16, 64, 64, {.bias_kind = Bias::kPostScale}),
        kind("bf16_dropout", ops::DType::kBf16, 64, 64, {.dropout = 0.5}),
        of_lengths("bf16_padded", Layout::kBshd),
        of_lengths("bf16_packed", Layout::kThd),
        kind("bf16_window", ops::DType::kBf16, 64, 64, {.window_left = 20}),
        kind("bf16_plain", ops::DType::kBf16, 50, 30),
        kind("f16_plain", ops::DType::kF16, 33, 65),
        kind("f32", ops::DType::kF32, 50, 30),
        kind("f32_256", ops::DType::kF32, 256, 256),
        kind("f32_everything", ops::DType::kF32, 64, 64,
             {.bias_kind = Bias::kPostScale, .dropout = 0.25})),
    [](const auto& one) { return one.param.name; });

TEST_P(AttentionGuarantees, TheSameBitsInEveryOrderAndAtEveryGuard) {
  test::with_type(GetParam().problem.dtype, [&]<typename T>() {
    std::vector<std::unique_ptr<Call<T>>> calls;
    for (const auto& [order, side] :
         {std::pair{Order::kAscending, kiln_cpu::Side::kEnd},
          {Order::kDescending, kiln_cpu::Side::kBegin},
          {Order::kShuffled, kiln_cpu::Side::kEnd}}) {
      calls.push_back(std::make_unique<Call<T>>(
          GetParam().problem, Setting{.lengths_q = GetParam().lengths_q,
                                      .lengths_kv = GetParam().lengths_kv,
                                      .capability = GetParam().capability,
                                      .order = order,
                                      .exact = side}));
      calls.back()->run_both();
    }
    expect_same_bits(*calls[0], *calls[1]);
    expect_same_bits(*calls[0], *calls[2]);
  });
}

/// Gives `one` what sequence `b` of `all` has: as many rows as `one` has.
template <typename T>
void take(Call<T>& one, const Call<T>& all, I64 b) {
  const auto copy = [&](Tensor<T> Call<T>::*tensor, Strides Problem::*strides,
                        bool is_query, I64 dim) {
    one.each(one.problem.*strides, is_query, dim,
             [&](std::size_t at, I64, I64 h, I64 i, I64 d) {
               (one.*tensor)[at] =
                   (all.*tensor)[all.at(all.problem.*strides, b, h, i, d, is_query)];
             });
  };
  copy(&Call<T>::q, &Problem::q, true, one.problem.dqk);
  copy(&Call<T>::k, &Problem::k, false, one.problem.dqk);
  copy(&Call<T>::v, &Problem::v, false, one.problem.dv);
  copy(&Call<T>::grad_o, &Problem::o, true, one.problem.dv);
}

template <typename T>
bool same_element(const T& a, const T& b) {
  // Of floats, too, whose zeros may differ. NOLINTNEXTLINE(bugprone-suspicious-*)
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// The number of elements of one's tensor that have other bits in sequence `b` of
/// `all`.
template <typename T>
// NOLINTNEXTLINE(readability-function-size): what, and where in either
int differing(Tensor<T> Call<T>::*tensor, Strides Problem::*strides, bool is_query,
              I64 dim, const Call<T>& one, const Call<T>& all, I64 b) {
  int count = 0;
  one.each(one.problem.*strides, is_query, dim,
           [&](std::size_t at, I64, I64 h, I64 i, I64 d) {
             const T other =
                 (all.*tensor)[all.at(all.problem.*strides, b, h, i, d, is_query)];
             count += same_element((one.*tensor)[at], other) ? 0 : 1;
           });
  return count;
}

/// Also the logarithms of the sums, which round less than the outputs.
template <typename T>
void expect_same_rows(const Call<T>& one, const Call<T>& all, I64 b) {
  EXPECT_EQ(differing(&Call<T>::o, &Problem::o, true, one.problem.dv, one, all, b), 0);
  EXPECT_EQ(
      differing(&Call<T>::grad_q, &Problem::q, true, one.problem.dqk, one, all, b), 0);
  for (I64 h = 0; h < one.problem.heads; ++h) {
    for (I64 i = 0; i < one.length(0, true); ++i) {
      const auto at = [&](const Call<T>& call, I64 of) {
        return call
            .stats[static_cast<std::size_t>(
                (of * call.problem.heads + h) * call.problem.sq + i)]
            .bits;
      };
      EXPECT_EQ(at(one, 0), at(all, b)) << "lse of head " << h << ", query " << i;
    }
  }
}

struct Dims {
  const char* name;
  ops::DType dtype;
  I64 dqk;
  I64 dv;
  ops::AttentionProblem problem{};

  /// With the sizes and what else is in `to`.
  [[nodiscard]] Problem with(const ops::AttentionProblem& to) const {
    ops::AttentionProblem made = to;
    made.heads = 2;
    made.kv_heads = 1;
    made.dqk = dqk;
    made.dv = dv;
    made.bias_kind = problem.bias_kind;
    made.dropout = problem.dropout;
    return problem_of(dtype, made);
  }
};

const auto kAllDims = testing::Values(
    Dims{"bf16_64", ops::DType::kBf16, 64, 64},
    Dims{"f16_96_64", ops::DType::kF16, 96, 64},
    Dims{"f16_128", ops::DType::kF16, 128, 128},
    Dims{"bf16_128", ops::DType::kBf16, 128, 128},
    Dims{"bf16_192_128", ops::DType::kBf16, 192, 128},
    Dims{"f16_256", ops::DType::kF16, 256, 256},
    Dims{"bf16_128_alibi", ops::DType::kBf16, 128, 128, {.bias_kind = Bias::kAlibi}},
    Dims{"bf16_plain", ops::DType::kBf16, 50, 30},
    Dims{"f32", ops::DType::kF32, 50, 30});

class AttentionRows : public testing::TestWithParam<Dims> {};
INSTANTIATE_TEST_SUITE_P(Kernels, AttentionRows, kAllDims,
                         [](const auto& one) { return one.param.name; });

TEST_P(AttentionRows, HaveTheSameBitsHoweverManyQueriesThereAre) {
  test::with_type(GetParam().dtype, [&]<typename T>() {
    const auto of = [&](I64 sq) {
      return Call<T>(GetParam().with({.sq = sq, .skv = 100}));
    };
    Call<T> all = of(130);
    all.run_both();
    for (const I64 sq : {1, 40}) {
      Call<T> one = of(sq);
      take(one, all, 0);
      one.run_both();
      expect_same_rows(one, all, 0);
    }
  });
}

TEST_P(AttentionRows, HaveTheSameBitsBesideARowOfLargeScores) {
  test::with_type(GetParam().dtype, [&]<typename T>() {
    const Problem problem = GetParam().with({.sq = 20, .skv = 100});
    Call<T> small(problem), large(problem);
    constexpr I64 kLargeRow = 3;
    large.each(
        large.problem.q, true, problem.dqk, [&](std::size_t at, I64, I64, I64 i, I64) {
          if (i == kLargeRow)
            large.q[at] = T::from(static_cast<float>(large.q[at].value() * 1000));
        });
    for (Call<T>* const call : {&small, &large}) call->run_both();
    const auto other_rows = [&](const Tensor<T> Call<T>::*tensor,
                                Strides Problem::*strides, I64 dim) {
      int differ = 0;
      small.each(
          small.problem.*strides, true, dim, [&](std::size_t at, I64, I64, I64 i, I64) {
            const bool same = same_element((small.*tensor)[at], (large.*tensor)[at]);
            differ += i == kLargeRow || same ? 0 : 1;
          });
      return differ;
    };
    EXPECT_EQ(other_rows(&Call<T>::o, &Problem::o, problem.dv), 0);
    EXPECT_EQ(other_rows(&Call<T>::grad_q, &Problem::q, problem.dqk), 0);
    for (std::size_t at = 0; at < small.stats.size(); ++at) {
      const bool is_other = static_cast<I64>(at) % problem.sq != kLargeRow;
      EXPECT_TRUE(!is_other || small.stats[at].bits == large.stats[at].bits) << at;
    }
  });
}

class AttentionSequences : public testing::TestWithParam<Dims> {};
INSTANTIATE_TEST_SUITE_P(Kernels, AttentionSequences, kAllDims,
                         [](const auto& one) { return one.param.name; });

TEST_P(AttentionSequences, HaveTheSameBitsAloneBesideOthersAndPadded) {
  test::with_type(GetParam().dtype, [&]<typename T>() {
    const std::vector<std::int32_t> lengths_q{80, 40};
    const std::vector<std::int32_t> lengths_kv{20, 100};
    for (const Layout layout : {Layout::kThd, Layout::kBshd}) {
      const auto of = [&](I64 batch, I64 sq, I64 skv, auto... lengths) {
        return Call<T>(GetParam().with({.batch = batch,
                                        .sq = sq,
                                        .skv = skv,
                                        .layout = layout,
                                        .mask = Mask::kPaddingCausalBottomRight}),
                       Setting{lengths...});
      };
      Call<T> all = of(2, 80, 100, lengths_q, lengths_kv);
      all.run_both();
      const std::vector<std::int32_t> length_q{40}, length_kv{100};
      Call<T> one = of(1, 40, 100, length_q, length_kv);
      take(one, all, 1);
      one.run_both();
      expect_same_rows(one, all, 1);
      EXPECT_EQ(
          differing(&Call<T>::grad_k, &Problem::k, false, one.problem.dqk, one, all, 1),
          0);
      EXPECT_EQ(
          differing(&Call<T>::grad_v, &Problem::v, false, one.problem.dv, one, all, 1),
          0);
    }
  });
}

TEST_P(AttentionSequences, ThatBeginOutsideTheTensorsAreClampedToThem) {
  test::with_type(GetParam().dtype, [&]<typename T>() {
    const auto run = [&](const std::vector<std::int32_t>& q_begins,
                         const std::vector<std::int32_t>& kv_begins) {
      auto call = std::make_unique<Call<T>>(
          GetParam().with({.batch = 2,
                           .sq = 80,
                           .skv = 100,
                           .layout = Layout::kThd,
                           .mask = Mask::kPaddingCausalBottomRight}),
          Setting{.lengths_q = {80, 40}, .lengths_kv = {20, 100}});
      call->set_begins(q_begins, kv_begins);
      call->run_both();
      return call;
    };
    const auto right = run({0, 80, 120}, {0, 20, 120});
    expect_same_bits(*right, *run({-50, 80, 2000}, {-1, 20, 1 << 30}));
    // Where a sequence seems to begin far outside, no row outside is read or written.
    run({0, 500, 120}, {70, -3, 2000});
    run({-90, -20, -10}, {1 << 30, 1 << 30, 5});
  });
}

}  // namespace
}  // namespace kiln::attention_test
