// The outputs of sequences without queries or keys, which cuDNN leaves as they were,
// and those of tokens of no sequence, set by their kernel on a CPU.

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "ops/cudnn_tensors.h"
#include "tests/support/attention_problem.h"
#include "tests/support/kernels/run_kernel.h"
#include "tests/support/kernels/run_plan.h"

namespace kiln {
namespace {

using Lengths = std::vector<std::int32_t>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::uint16_t kPoison = 0x7fc1;  // a NaN of either type
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kKvHeads = 2;
constexpr std::int64_t kLongest = 6;
constexpr std::int64_t kDim = 64;
constexpr std::int64_t kValueDim = 32;

/// Sequence 1 has no queries, 2 no keys, 3 neither; in the first is what cuDNN wrote.
const Lengths kQueries{5, 0, 3, 0, 6};
const Lengths kKeys{4, 6, 0, 0, 1};
constexpr std::int64_t kSequences = 5;

bool is_empty(std::size_t sequence) {
  return kQueries[sequence] == 0 || kKeys[sequence] == 0;
}

Lengths begins(const Lengths& lengths, std::int32_t first = 0) {
  Lengths all{first};
  for (const std::int32_t each : lengths) all.push_back(all.back() + each);
  return all;
}

/// One call's outputs, full of poison before the launch.
class EmptySequences : public testing::TestWithParam<std::tuple<bool, ops::DType>> {
 protected:
  [[nodiscard]] static bool is_packed() { return std::get<0>(GetParam()); }

  void run(attention::Pass pass) {
    problem_ = test::attention_problem([&](attention::Problem& problem) {
      problem.dtype = std::get<1>(GetParam());
      problem.pass = pass;
      problem.stats = pass == attention::Pass::kForward;
      problem.batch = kSequences;
      problem.heads = kHeads;
      problem.kv_heads = kKvHeads;
      problem.sq = problem.skv = longest_;
      problem.dqk = kDim;
      problem.dv = kValueDim;
      problem.layout = is_packed() ? attention::Layout::kThd : attention::Layout::kBshd;
      problem.mask = attention::Mask::kPadding;
    });
    const Lengths q = begins(kQueries, first_);
    const Lengths kv = begins(kKeys, first_);
    const ops::AttentionTensors tensors{
        .o = o_.data(),
        .stats = stats_.data(),
        .cu_seqlens_q = is_packed() ? q.data() : nullptr,
        .cu_seqlens_kv = is_packed() ? kv.data() : nullptr,
        .lengths_q = is_packed() ? nullptr : kQueries.data(),
        .lengths_kv = is_packed() ? nullptr : kKeys.data(),
        .grad_q = grad_q_.data(),
        .grad_k = grad_k_.data(),
        .grad_v = grad_v_.data(),
        .tokens_q = tokens_,
        .tokens_kv = tokens_};
    const kiln_cpu::LentMemory o(o_);
    const kiln_cpu::LentMemory stats(stats_);
    const kiln_cpu::LentMemory grad_q(grad_q_);
    const kiln_cpu::LentMemory grad_k(grad_k_);
    const kiln_cpu::LentMemory grad_v(grad_v_);
    const kiln_cpu::LentMemory begins_q(q);
    const kiln_cpu::LentMemory begins_kv(kv);
    const kiln_cpu::LentMemory lengths_q(kQueries);
    const kiln_cpu::LentMemory lengths_kv(kKeys);
    const auto done =
        kiln_cpu::run_plan(ops::empty_sequence_launches({problem_, tensors}),
                           kiln_cpu::kernels_of_program());
    ASSERT_TRUE(done) << done.error().message;
  }

  using Tensor = std::vector<std::uint16_t>;

  /// That a packed tensor's rows up to `tokens_` are 0 but those that a pass writes.
  void expect_cleared_around(const Tensor& tensor, const Lengths& lengths,
                             std::int64_t heads, std::int64_t dim) const {
    const std::int64_t row = heads * dim;
    Tensor wanted(tensor.size(), kPoison);
    std::fill_n(wanted.begin(), tokens_ * row, std::uint16_t{0});
    const Lengths first = begins(lengths, first_);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      if (!is_empty(i))
        std::fill_n(wanted.begin() + first[i] * row,
                    std::min<std::int64_t>(lengths[i], longest_) * row, kPoison);
    }
    EXPECT_EQ(tensor, wanted);
  }

  /// That a tensor's rows are 0 in the empty sequences, and poison in the others.
  void expect_cleared(const Tensor& tensor, const Lengths& lengths, std::int64_t heads,
                      std::int64_t dim) const {
    const Lengths first = begins(lengths);
    Tensor wanted(tensor.size(), kPoison);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      if (!is_empty(i))
        continue;
      const std::int64_t row =
          is_packed() ? first[i] : static_cast<std::int64_t>(i) * kLongest;
      const std::int64_t rows = is_packed() ? lengths[i] : kLongest;
      std::fill_n(wanted.begin() + row * heads * dim, rows * heads * dim,
                  std::uint16_t{0});
    }
    EXPECT_EQ(tensor, wanted);
  }

  static Tensor poisoned(std::int64_t heads, std::int64_t dim) {
    return Tensor(static_cast<std::size_t>(kSequences * kLongest * heads * dim),
                  kPoison);
  }

  attention::Problem problem_;
  std::int32_t first_ = 0;  // where the first packed sequence begins
  std::int64_t longest_ = kLongest;
  std::int64_t tokens_ = 0;
  Tensor o_ = poisoned(kHeads, kValueDim);
  Tensor grad_q_ = poisoned(kHeads, kDim);
  Tensor grad_k_ = poisoned(kKvHeads, kDim);
  Tensor grad_v_ = poisoned(kKvHeads, kValueDim);
  std::vector<float> stats_ = std::vector<float>(
      static_cast<std::size_t>(kSequences * kHeads * kLongest), 1.5F);
};

INSTANTIATE_TEST_SUITE_P(Layouts, EmptySequences,
                         testing::Combine(testing::Bool(),
                                          testing::Values(ops::DType::kBf16,
                                                          ops::DType::kF16)),
                         [](const auto& info) {
                           return std::string(to_string(std::get<1>(info.param))) +
                                  (std::get<0>(info.param) ? "_packed" : "_padded");
                         });

TEST_P(EmptySequences, HaveNoOutputAndTheLogarithmOfNothing) {
  run(attention::Pass::kForward);
  expect_cleared(o_, kQueries, kHeads, kValueDim);
  for (std::size_t i = 0; i < stats_.size(); ++i) {
    const bool is_of_empty = is_empty(i / (kHeads * kLongest));
    EXPECT_EQ(stats_[i], is_of_empty ? -kInfinity : 1.5F) << i;
  }
}

TEST_P(EmptySequences, HaveNoGradients) {
  run(attention::Pass::kBackward);
  expect_cleared(grad_q_, kQueries, kHeads, kDim);
  expect_cleared(grad_k_, kKeys, kKvHeads, kDim);
  expect_cleared(grad_v_, kKeys, kKvHeads, kValueDim);
}

TEST_P(EmptySequences, AndTokensOfNoSequenceAreCleared) {
  if (!is_packed())
    GTEST_SKIP() << "no other tokens";
  first_ = 2;
  longest_ = 4;
  tokens_ = 25;
  run(attention::Pass::kForward);
  expect_cleared_around(o_, kQueries, kHeads, kValueDim);
  run(attention::Pass::kBackward);
  expect_cleared_around(grad_q_, kQueries, kHeads, kDim);
  expect_cleared_around(grad_k_, kKeys, kKvHeads, kDim);
  expect_cleared_around(grad_v_, kKeys, kKvHeads, kValueDim);
}

}  // namespace
}  // namespace kiln
