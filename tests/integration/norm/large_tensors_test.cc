// Tensors of more than 2^31 elements, of which the last rows alone are computed. Guards
// against offsets in 32 bits: indices of int, and products of two ints that are widened
// too late; of the blocks' sums too.

#include <cstring>

#include "ops/plans.h"
#include "tests/integration/norm/problem.h"
#include "tests/support/kernels/run_plan.h"
#include "tests/support/tensors/sparse_tensor.h"

namespace kiln::norm_test {
namespace {

using test::SparseTensor;

/// Rows that have numbers, the last ones.
I64 tail_of(const Configuration& of) {
  return of.max_cols == 128 || of.max_cols == 512 ? 64 : 8;
}

/// So many multiprocessors that each block has one turn.
kiln::Device large_device() {
  return kiln_cpu::planned_device({9, 0}, 1 << 30);
}

/// The first launch of `args`, its last 4 blocks.
template <typename Args>
void run_last_blocks(const Args& args) {
  auto plan = ops::plan(args, large_device());
  ASSERT_TRUE(plan) << plan.error().message;
  const auto done = kiln_cpu::run_last_blocks(*std::move(plan), 4);
  ASSERT_TRUE(done) << done.error().message;
}

class LargeNorm : public testing::TestWithParam<Configuration> {};

INSTANTIATE_TEST_SUITE_P(All, LargeNorm, testing::ValuesIn(configurations()), kNameOf);

/// The last rows of a problem that is small are those of a large one.
template <typename T, typename W>
class LargeProblem {
 public:
  explicit LargeProblem(const Configuration& of)
      : of_(of), small_(of, {.rows = tail_of(of), .cols = aligned_length(of)}) {
    const auto size = small_.x.size();
    std::copy_n(small_.x.data(), size, x_.row(rows_ - tail_));
    std::copy_n(small_.dy.data(), size, dy_.row(rows_ - tail_));
    if (of.residual)
      std::copy_n(small_.residual.data(), size, residual_.row(rows_ - tail_));
  }

  void expect_forward_right() {
    if (of_.layer)
      forward<ops::LayerNormForward>();
    else
      forward<ops::RmsNormForward>();
    expect_last_row(small_.forward().y);
  }

  void expect_backward_right() {
    const auto statistics = small_.statistics();
    std::copy_n(statistics.rstd.data(), tail_, rstd_.row(rows_ - tail_));
    if (of_.layer)
      std::copy_n(statistics.mean.data(), tail_, mean_.row(rows_ - tail_));
    if (of_.layer)
      backward<ops::LayerNormBackward>(ops::layernorm_backward_workspace_bytes);
    else
      backward<ops::RmsNormBackward>(ops::rmsnorm_backward_workspace_bytes);
    expect_last_row(small_.backward().dx);
  }

 private:
  static float* floats(SparseTensor<F32>& tensor) {
    return reinterpret_cast<float*>(tensor.data());
  }

  template <typename Args>
  Args arguments() {
    auto args = small_.template arguments<Args>();
    args.rows = rows_;
    args.x = x_.data();
    args.rstd = floats(rstd_);
    if constexpr (requires { args.mean; })
      args.mean = floats(mean_);
    return args;
  }

  template <typename Args>
  void forward() {
    auto args = arguments<Args>();
    args.y = out_.data();
    args.residual = residual_.data();
    args.sum = sum_.data();
    run_last_blocks(args);
  }

  template <typename Args, typename WorkspaceBytes>
  void backward(WorkspaceBytes workspace_bytes) {
    auto args = arguments<Args>();
    args.dx = out_.data();
    args.dy = dy_.data();
    args.dsum = residual_.data();
    args.workspace_bytes = workspace_bytes(large_device(), args).value();
    SparseTensor<F32> workspace("workspace",
                                static_cast<I64>(args.workspace_bytes / 4));
    args.workspace = workspace.data();
    run_last_blocks(args);
  }

  void expect_last_row(const Tensor<T>& want) {
    EXPECT_EQ(std::memcmp(out_.row(rows_ - 1), want.data() + (tail_ - 1) * cols_,
                          static_cast<std::size_t>(cols_) * sizeof(T)),
              0);
    for (I64 j = 0; j < cols_; ++j) EXPECT_EQ(out_.row(0)[j].value(), 0) << j;
  }

  const Configuration of_;
  const Problem<T, W> small_;
  const I64 tail_ = tail_of(of_);
  const I64 cols_ = aligned_length(of_);
  const I64 rows_ = (I64{1} << 31) / cols_ + tail_;
  SparseTensor<T> x_{"x", rows_* cols_, cols_};
  SparseTensor<T> residual_{"residual", rows_* cols_, cols_};
  SparseTensor<T> dy_{"dy", rows_* cols_, cols_};
  SparseTensor<T> out_{"out", rows_* cols_, cols_};
  SparseTensor<T> sum_{"sum", rows_* cols_, cols_};
  SparseTensor<F32> mean_{"mean", rows_};
  SparseTensor<F32> rstd_{"rstd", rows_};
};

TEST_P(LargeNorm, IsRightBeyondTwoToThe31Elements) {
  with_types(GetParam(), []<typename T, typename W>() {
    LargeProblem<T, W> problem(GetParam());
    problem.expect_forward_right();
    problem.expect_backward_right();
  });
}

}  // namespace
}  // namespace kiln::norm_test
