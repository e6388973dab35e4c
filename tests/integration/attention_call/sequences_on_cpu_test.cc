// Offsets and lengths of packed sequences, written by their kernel on a CPU.

#include <gmock/gmock.h>

#include <map>
#include <vector>

#include "ops/cudnn_tensors.h"
#include "tests/support/attention_problem.h"
#include "tests/support/kernels/run_kernel.h"
#include "tests/support/kernels/run_plan.h"

namespace kiln {
namespace {

using attention::TensorRole;
using testing::ElementsAreArray;
using Numbers = std::vector<std::int32_t>;

/// What the kernel writes, by role, out of poison.
class Sequences {
 public:
  Sequences(std::int64_t batch, std::int64_t longest) {
    problem_ = test::attention_problem([&](attention::Problem& problem) {
      problem.batch = batch;
      problem.kv_heads = 2;
      problem.sq = problem.skv = longest;
      problem.dv = 32;
      problem.layout = attention::Layout::kThd;
      problem.mask = attention::Mask::kPadding;
    });
  }

  /// The rows that the tensors have.
  void set_tokens(std::int64_t q, std::int64_t kv) {
    tokens_q_ = q;
    tokens_kv_ = kv;
  }

  void run(const Numbers& q, const Numbers& kv, const Numbers* lengths = nullptr) {
    memory_.assign(ops::bytes_before_plan(problem_) / 4 + 1, kPoison);
    const ops::AttentionTensors tensors{
        .cu_seqlens_q = q.data(),
        .cu_seqlens_kv = kv.data(),
        .lengths_q = lengths == nullptr ? nullptr : lengths->data(),
        .workspace = memory_.data(),
        .workspace_bytes = ops::bytes_before_plan(problem_),
        .tokens_q = tokens_q_,
        .tokens_kv = tokens_kv_};
    const ops::AttentionCall call{problem_, tensors};
    const kiln_cpu::LentMemory memory(memory_);
    const kiln_cpu::LentMemory begins_q(q);
    const kiln_cpu::LentMemory begins_kv(kv);
    const Numbers none;
    const kiln_cpu::LentMemory given(lengths == nullptr ? none : *lengths);
    const auto done = kiln_cpu::run_plan(ops::launches_before_plan(call),
                                         kiln_cpu::kernels_of_program());
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(memory_.back(), kPoison) << "written beyond its bytes";
    float scale = 1;
    for (const auto& tensor : ops::cudnn_tensors(call, scale))
      at_[tensor.role] = static_cast<std::int32_t*>(tensor.pointer);
  }

  [[nodiscard]] Numbers of(TensorRole role) const {
    const bool is_lengths =
        role == TensorRole::kLengthsQ || role == TensorRole::kLengthsKv;
    const auto* const begin = at_.at(role);
    return {begin, begin + problem_.batch + (is_lengths ? 0 : 1)};
  }

 private:
  static constexpr std::int32_t kPoison = -77;
  attention::Problem problem_;
  std::int64_t tokens_q_ = 0;
  std::int64_t tokens_kv_ = 0;
  Numbers memory_;
  std::map<TensorRole, std::int32_t*> at_;
};

TEST(AttentionSequences, AreOffsetsInElementsOfEachTensor) {
  Sequences sequences(3, 100);
  sequences.run({0, 5, 5, 17}, {0, 1, 41, 100});
  if (testing::Test::HasFatalFailure())
    return;
  EXPECT_EQ(sequences.of(TensorRole::kOffsetsQ), (Numbers{0, 1280, 1280, 4352}));
  EXPECT_EQ(sequences.of(TensorRole::kOffsetsK), (Numbers{0, 128, 5248, 12800}));
  EXPECT_EQ(sequences.of(TensorRole::kOffsetsV), (Numbers{0, 64, 2624, 6400}));
  EXPECT_EQ(sequences.of(TensorRole::kOffsetsO), (Numbers{0, 640, 640, 2176}));
  EXPECT_EQ(sequences.of(TensorRole::kLengthsQ), (Numbers{5, 0, 12}));
  EXPECT_EQ(sequences.of(TensorRole::kLengthsKv), (Numbers{1, 40, 59}));
}

TEST(AttentionSequences, AreAsLongAsIsSaidAndNoLongerThanTheLongest) {
  Sequences sequences(3, 10);
  const Numbers lengths{3, 30, -1};
  sequences.run({0, 5, 25, 30}, {0, 10, 25, 30}, &lengths);
  if (testing::Test::HasFatalFailure())
    return;
  EXPECT_EQ(sequences.of(TensorRole::kLengthsQ), (Numbers{3, 10, 0}));
  EXPECT_EQ(sequences.of(TensorRole::kLengthsKv), (Numbers{10, 10, 5}));
}

TEST(AttentionSequences, AreClampedToTheRowsOfTheTensors) {
  Sequences sequences(3, 100);
  sequences.set_tokens(17, 60);
  sequences.run({-3, 5, 1000, 17}, {0, 2000, 41, 1 << 30});
  if (testing::Test::HasFatalFailure())
    return;
  EXPECT_EQ(sequences.of(TensorRole::kOffsetsQ), (Numbers{0, 1280, 4352, 4352}));
  EXPECT_EQ(sequences.of(TensorRole::kOffsetsO), (Numbers{0, 640, 2176, 2176}));
  EXPECT_EQ(sequences.of(TensorRole::kOffsetsK), (Numbers{0, 7680, 5248, 7680}));
  EXPECT_EQ(sequences.of(TensorRole::kOffsetsV), (Numbers{0, 3840, 2624, 3840}));
  EXPECT_EQ(sequences.of(TensorRole::kLengthsQ), (Numbers{5, 12, 0}));
  EXPECT_EQ(sequences.of(TensorRole::kLengthsKv), (Numbers{60, 0, 19}));
}

TEST(AttentionSequences, AreMoreThanABlockHasThreads) {
  for (const std::int64_t batch : {1, 127, 128, 300}) {
    Numbers begins;
    for (std::int64_t i = 0; i <= batch; ++i)
      begins.push_back(static_cast<std::int32_t>(2 * i));
    Sequences sequences(batch, 2);
    sequences.run(begins, begins);
    if (testing::Test::HasFatalFailure())
      return;
    EXPECT_EQ(sequences.of(TensorRole::kOffsetsK).back(), 2 * batch * 128);
    EXPECT_THAT(sequences.of(TensorRole::kLengthsKv),
                ElementsAreArray(Numbers(static_cast<std::size_t>(batch), 2)));
  }
}

}  // namespace
}  // namespace kiln
