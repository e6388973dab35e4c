// Attention by cuDNN on real devices, as programs call it: beside double and beside
// Kiln's own kernels, whose passes it can take turns with.

#include "tests/gpu/attention_by_cudnn.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace kiln::gpu_test {
namespace {

using attention::Bias;
using attention::Layout;
using attention::Mask;
using attention::Problem;
using attention_test::Call;
using attention_test::I64;
using attention_test::Matrix;
using ops::DType;

std::vector<AttentionCase> cudnn_cases() {
  return {
      one("f16_64", DType::kF16, 64),
      one("bf16_64_causal", DType::kBf16, 64, {.mask = Mask::kCausal}),
      one("f16_64_causal_bottom_right_groups", DType::kF16, 64,
          group(Mask::kCausalBottomRight)),
      one("bf16_64_window", DType::kBf16, 64, window(20, 30)),
      one("f16_64_causal_window", DType::kF16, 64,
          {.mask = Mask::kCausal, .window_left = 20}),
      one("f16_128", DType::kF16, 128),
      one("bf16_128_causal", DType::kBf16, 128, {.mask = Mask::kCausal}),
      one("f16_128_window", DType::kF16, 128, window(40, 0)),
      one("bf16_192_128_causal", DType::kBf16, 192, {.dv = 128, .mask = Mask::kCausal}),
      one("bf16_192_128_causal_bottom_right_groups", DType::kBf16, 192,
          group(Mask::kCausalBottomRight, 128)),
      in_layout("bf16_64_sbhd", Layout::kSbhd),
      in_layout("bf16_64_bhsd", Layout::kBhsd),
      padded("f16_64_padded", DType::kF16, 64),
      padded("bf16_128_padded_causal", DType::kBf16, 128, Mask::kPaddingCausal),
      packed("bf16_64_packed", DType::kBf16, 64, 64),
      packed("f16_192_128_packed", DType::kF16, 192, 128),
      one("bf16_64_bias", DType::kBf16, 64, {.bias_kind = Bias::kPostScale}),
      one("bf16_64_boolean", DType::kBf16, 64, {.bias_kind = Bias::kBoolean}),
      one("f16_128_causal_bias", DType::kF16, 128,
          {.mask = Mask::kCausal, .bias_kind = Bias::kPostScale}),
      biased("11ss"),
      biased("b1ss"),
      biased("bhss"),
      biased("b11s"),
      one("bf16_64_causal_alibi", DType::kBf16, 64,
          {.mask = Mask::kCausal, .bias_kind = Bias::kAlibi}),
  };
}

/// Twice what either may be off, in the rows that hold tokens.
template <typename T>
void expect_same(const char* name, const Matrix& a, const Matrix& b) {
  ASSERT_EQ(a.size(), b.size());
  double off = 0;
  double largest = 0;
  for (std::size_t row = 0; row < a.size(); ++row) {
    for (std::size_t col = 0; col < a[row].size(); ++col) {
      const double each = std::fabs(a[row][col] - b[row][col]);
      off = std::isnan(each) ? std::numeric_limits<double>::infinity()
                             : std::max(off, each);
      largest = std::max(largest, std::fabs(b[row][col]));
    }
  }
  EXPECT_LE(off, 2 * attention_test::most_off<T>(largest))
      << name << ", of which the largest is " << largest;
}

template <typename T>
void expect_same_stats(const Call<T>& a, const Call<T>& b, I64 sequence, I64 head) {
  for (I64 i = 0; i < b.length(sequence, true); ++i) {
    const I64 row = (sequence * b.problem.heads + head) * b.problem.sq + i;
    const auto at = static_cast<std::size_t>(row);
    const double one = a.stats[at].bits;
    const double other = b.stats[at].bits;
    if (one == other)  // perhaps -infinity
      continue;
    EXPECT_LE(std::fabs(one - other),
              2 * attention_test::kMostOffOfStats * std::max(1.0, std::fabs(other)))
        << "stats of query " << i << ": " << one << " and " << other;
  }
}

template <typename T>
void expect_same(Call<T>& a, Call<T>& b) {
  const Problem& p = b.problem;
  for (I64 sequence = 0; sequence < p.batch; ++sequence) {
    const auto expect = [&](const char* name, const auto& of, const auto& strides,
                            I64 head, bool is_query, I64 dim) {
      expect_same<T>(name, a.head(of(a), strides, sequence, head, is_query, dim),
                     b.head(of(b), strides, sequence, head, is_query, dim));
    };
    for (I64 head = 0; head < p.heads; ++head) {
      SCOPED_TRACE(testing::Message() << "sequence " << sequence << ", head " << head);
      expect_same_stats(a, b, sequence, head);
      expect(
          "o", [](auto& call) -> auto& { return call.o; }, p.o, head, true, p.dv);
      expect(
          "grad_q", [](auto& call) -> auto& { return call.grad_q; }, p.q, head, true,
          p.dqk);
    }
    for (I64 head = 0; head < p.kv_heads; ++head) {
      SCOPED_TRACE(testing::Message() << "sequence " << sequence << ", head " << head);
      expect(
          "grad_k", [](auto& call) -> auto& { return call.grad_k; }, p.k, head, false,
          p.dqk);
      expect(
          "grad_v", [](auto& call) -> auto& { return call.grad_v; }, p.v, head, false,
          p.dv);
    }
  }
  Matrix bias_a(1);
  Matrix bias_b(1);
  for (std::size_t i = 0; i < b.grad_bias.size(); ++i) {
    bias_a[0].push_back(a.grad_bias[i].value());
    bias_b[0].push_back(b.grad_bias[i].value());
  }
  expect_same<T>("grad_bias", bias_a, bias_b);
}

class GpuAttentionByCudnn : public AttentionByCudnnTest {
 protected:
  void SetUp() override {
    AttentionByCudnnTest::SetUp();
    if (!IsSkipped() && driver().is_simulated)
      GTEST_SKIP() << "for real devices";
  }
};

INSTANTIATE_TEST_SUITE_P(Problems, GpuAttentionByCudnn,
                         testing::ValuesIn(cudnn_cases()), name_of);

TEST_P(GpuAttentionByCudnn, HasTheResultsOfKilnsKernels) {
  where_cudnn_runs(Passes::kBoth, []<typename T>() {
    const auto cudnn = run<T>(AttentionBackend::kCudnn, AttentionBackend::kCudnn);
    const auto kiln = run<T>(AttentionBackend::kKiln, AttentionBackend::kKiln);
    check(kiln);
    if (!HasFatalFailure())
      expect_same(*cudnn, *kiln);
  });
}

TEST_P(GpuAttentionByCudnn, IsRight) {
  where_cudnn_runs(Passes::kBoth, []<typename T>() {
    check(run<T>(AttentionBackend::kCudnn, AttentionBackend::kCudnn));
  });
}

// The statistics of both are natural logarithms, and o is the same tensor.
TEST_P(GpuAttentionByCudnn, ItsForwardPassServesKilnsBackwardPass) {
  where_cudnn_runs(Passes::kForward, []<typename T>() {
    check(run<T>(AttentionBackend::kCudnn, AttentionBackend::kKiln));
  });
}

TEST_P(GpuAttentionByCudnn, ItsBackwardPassTakesKilnsForwardPass) {
  where_cudnn_runs(Passes::kBackward, []<typename T>() {
    check(run<T>(AttentionBackend::kKiln, AttentionBackend::kCudnn));
  });
}

// jax-ml/jax #27599: plans of several devices, each captured on its own.
TEST_P(GpuAttentionByCudnn, IsRightInAGraphOnEveryDevice) {
  where_cudnn_runs(Passes::kBothInGraphs, devices(), []<typename T>() {
    const AttentionInGraphs graphs;
    check(run<T>(AttentionBackend::kCudnn, AttentionBackend::kCudnn));
  });
}

}  // namespace
}  // namespace kiln::gpu_test
