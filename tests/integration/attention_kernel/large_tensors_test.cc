// Tensors of more than 2^32 elements, of which few are touched: a small problem's, far
// apart. Guards against offsets in 32 bits, which wrap and lead somewhere else.

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>

#include "tests/integration/attention_kernel/check.h"
#include "tests/support/kernels/run_plan.h"
#include "tests/support/tensors/sparse_tensor.h"

namespace kiln::attention_test {
namespace {

/// A tensor of a large problem: what `small`'s has, with other strides and as rows
/// `first` and the next.
template <typename T>
class Spread {
 public:
  Spread(const Call<T>& small, const Tensor<T>& tensor, const Strides& from,
         const Strides& to, bool is_query, I64 dim, I64 first = 0)
      : small_(small),
        tensor_(tensor),
        from_(from),
        to_(to),
        is_query_(is_query),
        dim_(dim),
        first_(first),
        sparse_("large", size(), 1) {}

  void copy_in() {
    each([&](std::size_t near, std::size_t far) { at(far) = tensor_[near]; });
  }
  void expect_same(const char* name) {
    I64 different = 0;
    each([&](std::size_t near, std::size_t far) {
      different += at(far).bits != tensor_[near].bits ? 1 : 0;
    });
    EXPECT_EQ(different, 0) << name;
  }
  [[nodiscard]] T* data() { return sparse_.data(); }

 private:
  [[nodiscard]] I64 size() const {
    I64 last = 0;
    each([&](std::size_t, std::size_t far) {
      last = std::max(last, static_cast<I64>(far));
    });
    return last + 1;
  }
  T& at(std::size_t far) { return sparse_[static_cast<I64>(far)]; }
  template <typename Visit>
  void each(const Visit& visit) const {
    small_.each(from_, is_query_, dim_,
                [&](std::size_t near, I64 b, I64 h, I64 i, I64 d) {
                  visit(near, small_.at(to_, b, h, first_ + i, d, is_query_));
                });
  }

  const Call<T>& small_;
  const Tensor<T>& tensor_;
  Strides from_;
  Strides to_;
  bool is_query_;
  I64 dim_;
  I64 first_;
  test::SparseTensor<T> sparse_;
};

/// `small`, which has been run, as the queries from `first` on of the problem `large`.
template <typename T>
class LargeCall {
 public:
  LargeCall(Call<T>& small, const Problem& large, I64 first = 0)
      : small_(small),
        problem_(large),
        first_(first),
        q_(small, small.q, small.problem.q, large.q, true, large.dqk, first),
        k_(small, small.k, small.problem.k, large.k, false, large.dqk),
        v_(small, small.v, small.problem.v, large.v, false, large.dv),
        o_(small, small.o, small.problem.o, large.o, true, large.dv, first),
        grad_o_(small, small.grad_o, small.problem.o, large.o, true, large.dv, first),
        grad_q_(small, small.grad_q, small.problem.q, large.q, true, large.dqk, first),
        grad_k_(small, small.grad_k, small.problem.k, large.k, false, large.dqk),
        grad_v_(small, small.grad_v, small.problem.v, large.v, false, large.dv),
        bias_("bias", large.heads * large.sq * large.skv),
        grad_bias_("grad_bias", large.heads * large.sq * large.skv),
        stats_("stats", large.batch * large.heads * large.sq),
        delta_("delta", large.batch * large.heads * large.sq) {
    for (Spread<T>* const input : {&q_, &k_, &v_, &grad_o_}) input->copy_in();
    each_bias([&](std::size_t near, I64 far) { bias_[far] = small_.bias[near]; });
  }

  /// Both passes. Where there are more queries than the small problem's, only the
  /// blocks that compute those.
  void run() {
    ops::AttentionTensors with = small_.tensors();
    with.q = q_.data();
    with.k = k_.data();
    with.v = v_.data();
    with.o = o_.data();
    with.stats = stats_.data();
    with.bias = small_.bias.size() == 0 ? nullptr : bias_.data();
    with.grad_o = grad_o_.data();
    with.grad_q = grad_q_.data();
    with.grad_k = grad_k_.data();
    with.grad_v = grad_v_.data();
    with.grad_bias = problem_.bias_gradient ? grad_bias_.data() : nullptr;
    with.workspace = delta_.data();
    with.workspace_bytes =
        static_cast<std::size_t>(problem_.batch * problem_.heads * problem_.sq) *
        sizeof(float);
    const bool has_bias_gradient = problem_.bias_gradient;
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      problem_.pass = pass;
      problem_.training = true;
      problem_.stats = true;
      problem_.bias_gradient = has_bias_gradient && pass == Pass::kBackward;
      auto plan = ops::plan({problem_, with}, kiln_cpu::planned_device());
      ASSERT_TRUE(plan) << plan.error().message;
      for (ops::Launch& launch : *plan) run_launch(launch);
    }
  }

  void expect_queries_same() {
    o_.expect_same("o");
    grad_q_.expect_same("dq");
    I64 different = 0;
    for (I64 b = 0; b < problem_.batch; ++b) {
      for (I64 h = 0; h < problem_.heads; ++h) {
        for (I64 i = 0; i < small_.problem.sq; ++i) {
          const I64 head = b * problem_.heads + h;
          const auto near = static_cast<std::size_t>(head * small_.problem.sq + i);
          different +=
              stats_[head * problem_.sq + first_ + i] != small_.stats[near].bits ? 1
                                                                                 : 0;
        }
      }
    }
    EXPECT_EQ(different, 0) << "stats";
    if (small_.grad_bias.size() == 0)
      return;
    I64 biases = 0;
    each_bias([&](std::size_t near, I64 far) {
      biases += grad_bias_[far].bits != small_.grad_bias[near].bits ? 1 : 0;
    });
    EXPECT_EQ(biases, 0) << "dbias";
  }
  void expect_keys_same() {
    grad_k_.expect_same("dk");
    grad_v_.expect_same("dv");
  }

 private:
  void run_launch(ops::Launch& launch) {
    const kiln_cpu::Variant* const kernel =
        kiln_cpu::find_variant(launch, kiln_cpu::kernels_of_program());
    ASSERT_NE(kernel, nullptr) << launch.kernel;
    const auto geometry = kernel->geometry(launch.extents);
    ASSERT_TRUE(geometry) << geometry.error().message;
    const auto start = [&](const kiln_cpu::LaunchOptions& options) {
      const auto done =
          kernel->launch_with(*geometry, options, launch.arguments.addresses(),
                              launch.arguments.sizes_bytes());
      EXPECT_TRUE(done) << done.error().message;
    };
    const bool is_of_keys = !launch.entry.empty();
    if (is_of_keys && first_ > 0)
      return;  // each of its blocks goes over all queries
    if (is_of_keys || problem_.sq == small_.problem.sq)
      return start({});
    // A head's tiles one after the other, the last one first; of the gradient of a
    // bias the first one.
    const I64 tiles = geometry->grid[0] / problem_.heads;
    const I64 tile = problem_.sq / tiles;
    const I64 count = (small_.problem.sq + tile - 1) / tile;
    const bool is_last_first = launch.kernel != "attention_bias_bwd";
    const I64 number = is_last_first ? tiles - first_ / tile - count : first_ / tile;
    for (I64 head = 0; head < problem_.heads; ++head)
      start({.first_block = head * tiles + number, .most_blocks = count});
  }
  template <typename Visit>
  void each_bias(const Visit& visit) {
    if (small_.bias.size() == 0)
      return;
    const Problem& small = small_.problem;
    for (I64 h = 0; h < small.heads; ++h) {
      for (I64 i = 0; i < small.sq; ++i) {
        for (I64 j = 0; j < small.skv; ++j)
          visit(static_cast<std::size_t>((h * small.sq + i) * small.skv + j),
                (h * problem_.sq + first_ + i) * problem_.skv + j);
      }
    }
  }

  Call<T>& small_;
  Problem problem_;
  I64 first_;
  Spread<T> q_, k_, v_, o_, grad_o_, grad_q_, grad_k_, grad_v_;
  test::SparseTensor<T> bias_, grad_bias_;
  test::SparseTensor<float> stats_, delta_;
};

template <typename Check>
void with_both_types(const Check& check) {
  for (const ops::DType dtype : {ops::DType::kBf16, ops::DType::kF32})
    test::with_type(dtype, [&]<typename T>() {
      SCOPED_TRACE(to_string(dtype));
      check.template operator()<T>(dtype);
    });
}

constexpr I64 kFar = I64{1} << 32U;

// More rows than a block's threads copy at once.
TEST(AttentionOfLargeTensors, HasStridesOf64Bits) {
  with_both_types([]<typename T>(ops::DType dtype) {
    for (I64 Strides::*const stride :
         {&Strides::batch, &Strides::head, &Strides::sequence}) {
      Call<T> small(problem_of(
          {.dtype = dtype, .batch = 2, .heads = 2, .sq = 20, .skv = 20, .dqk = 64}));
      small.run_both();
      Problem large = small.problem;
      for (Strides* const each : {&large.q, &large.k, &large.v, &large.o})
        each->*stride = kFar;
      LargeCall<T> call(small, large);
      call.run();
      call.expect_queries_same();
      call.expect_keys_same();
    }
  });
}

TEST(AttentionOfLargeTensors, HasPackedSequencesThatBeginFarOff) {
  with_both_types([]<typename T>(ops::DType dtype) {
    Call<T> small(problem_of({.dtype = dtype,
                              .batch = 2,
                              .heads = 2,
                              .sq = 3,
                              .skv = 3,
                              .dqk = 64,
                              .layout = Layout::kThd}),
                  {.lengths_q = {2, 3}, .lengths_kv = {3, 2}});
    small.run_both();
    Problem large = small.problem;
    for (Strides* const each : {&large.q, &large.k, &large.v, &large.o})
      each->sequence = kFar;
    LargeCall<T> call(small, large);
    call.run();
    call.expect_queries_same();
    call.expect_keys_same();
  });
}

constexpr I64 kLongest = I64{1} << 29U;  // the most queries that there may be
constexpr I64 kHeads = 5;                // times these: more rows than 2^31

TEST(AttentionOfLargeTensors, HasTheLastQueriesOfTheLongestSequence) {
  with_both_types([]<typename T>(ops::DType dtype) {
    constexpr I64 kRows = 64;
    Problem problem{{.dtype = dtype,
                     .heads = kHeads,
                     .sq = kRows,
                     .skv = 8,
                     .dqk = 64,
                     .bias_kind = Bias::kPostScale},
                    {.bias_gradient = true}};
    Call<T> small(problem_of(problem));
    small.run_both();
    problem.sq = kLongest;
    LargeCall<T> call(small, problem_of(problem), kLongest - kRows);
    call.run();
    call.expect_queries_same();
  });
}

TEST(AttentionOfLargeTensors, HasStatisticsAndBiasesOfPackedSequencesThatMayBeLong) {
  with_both_types([]<typename T>(ops::DType dtype) {
    Problem problem{{.dtype = dtype,
                     .heads = kHeads,
                     .sq = 8,
                     .skv = 8,
                     .dqk = 64,
                     .layout = Layout::kThd,
                     .bias_kind = Bias::kPostScale},
                    {.bias_gradient = true}};
    Call<T> small(problem_of(problem), {.lengths_q = {8}, .lengths_kv = {8}});
    small.run_both();
    problem.sq = kLongest;
    LargeCall<T> call(small, problem_of(problem));
    call.run();
    call.expect_queries_same();
    call.expect_keys_same();
  });
}

}  // namespace
}  // namespace kiln::attention_test
