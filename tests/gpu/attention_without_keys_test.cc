// Queries that see no key, by cuDNN on real devices: what kiln/ops/attention.h promises
// of them holds whoever computes it.

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/gpu/attention_by_cudnn.h"

namespace kiln::gpu_test {
namespace {

using attention::Mask;
using attention::Problem;
using attention_test::Call;
using attention_test::I64;
using ops::DType;

/// Each has a query that sees no key.
std::vector<AttentionCase> cases_without_keys() {
  AttentionCase longer = one("f16_64_causal_bottom_right", DType::kF16, 64);
  longer.problem.mask = Mask::kCausalBottomRight;
  longer.problem.skv = 30;
  return {
      longer,
      padded("f16_64_padded", DType::kF16, 64),
      padded("bf16_128_padded_causal_bottom_right", DType::kBf16, 128,
             Mask::kPaddingCausalBottomRight),
      packed("bf16_64_packed", DType::kBf16, 64, 64),
      packed("f16_192_128_packed", DType::kF16, 192, 128),
  };
}

class GpuAttentionByCudnnWithoutKeys : public AttentionByCudnnTest {};

INSTANTIATE_TEST_SUITE_P(Problems, GpuAttentionByCudnnWithoutKeys,
                         testing::ValuesIn(cases_without_keys()), name_of);

template <typename T>
bool sees_a_key(const Call<T>& call, I64 sequence, I64 head, I64 query) {
  if (query >= call.length(sequence, true))
    return false;
  const attention_test::Terms terms = call.terms(sequence, head);
  for (I64 key = 0; key < call.length(sequence, false); ++key) {
    if (terms.sees(query, key))
      return true;
  }
  return false;
}

/// What a call wrote for the queries that see no key, those behind a sequence's tokens
/// among them.
template <typename T>
class RowsWithoutKeys {
 public:
  explicit RowsWithoutKeys(Call<T>& call) {
    const Problem& p = call.problem;
    for (I64 sequence = 0; sequence < p.batch; ++sequence) {
      for (I64 head = 0; head < p.heads; ++head) {
        for (I64 query = 0; query < p.sq; ++query) {
          if (!sees_a_key(call, sequence, head, query))
            add(call, sequence, head, query);
        }
      }
    }
  }

  void expect_nothing_seen() const {
    EXPECT_GT(rows_, 0);
    EXPECT_EQ(wrong_stats_, std::nullopt) << "a stats that is not -infinity";
    EXPECT_EQ(wrong_o_, std::nullopt) << "an o that is not 0";
    EXPECT_EQ(wrong_grad_q_, std::nullopt) << "a grad_q that is not 0";
  }

 private:
  void add(Call<T>& call, I64 sequence, I64 head, I64 query) {
    const Problem& p = call.problem;
    ++rows_;
    const I64 row = (sequence * p.heads + head) * p.sq + query;
    note(call.stats[static_cast<std::size_t>(row)].bits, -test::kInfinity,
         wrong_stats_);
    if (query >= call.rows(sequence, true))
      return;  // no row of the tensors
    for (I64 d = 0; d < p.dv; ++d)
      note(call.o[call.at(p.o, sequence, head, query, d, true)].value(), 0, wrong_o_);
    for (I64 d = 0; d < p.dqk; ++d)
      note(call.grad_q[call.at(p.q, sequence, head, query, d, true)].value(), 0,
           wrong_grad_q_);
  }
  /// Of wrong numbers the first.
  static void note(double number, double wanted, std::optional<double>& wrong) {
    if (!wrong && !(number == wanted))
      wrong = number;
  }

  int rows_ = 0;
  std::optional<double> wrong_stats_;
  std::optional<double> wrong_o_;
  std::optional<double> wrong_grad_q_;
};

TEST_P(GpuAttentionByCudnnWithoutKeys, HasNoOutputAndNoGradient) {
  where_cudnn_runs(Passes::kBoth, []<typename T>() {
    const auto call = run<T>(AttentionBackend::kCudnn, AttentionBackend::kCudnn);
    if (!HasFatalFailure())
      RowsWithoutKeys<T>(*call).expect_nothing_seen();
  });
}

}  // namespace
}  // namespace kiln::gpu_test
