// Tensors of more than 2^31 elements, of which the last rows alone are computed. Guards
// against offsets in 32 bits: indices of int, and products of two ints that are widened
// too late; of the blocks' sums too.

#include "tests/integration/norm/problem.h"
#include "tests/support/cpu_kernel/guarded_memory.h"

namespace kiln::norm_test {
namespace {

/// Rows that have numbers, the last ones.
I64 tail_of(const Configuration& of) {
  return of.max_cols == 128 || of.max_cols == 512 ? 64 : 8;
}

/// Takes no room but for its last rows; the others are zeros.
template <typename T>
class SparseTensor {
 public:
  SparseTensor(const char* name, I64 rows, I64 cols)
      : memory_(name, static_cast<std::size_t>(rows * cols) * sizeof(T), {}),
        cols_(cols) {}
  [[nodiscard]] T* row(I64 number) { return data() + number * cols_; }
  [[nodiscard]] T* data() { return reinterpret_cast<T*>(memory_.data()); }

 private:
  kiln_cpu::GuardedMemory memory_;
  I64 cols_;
};

/// The first launch of `args`, its last 4 blocks.
template <typename Args>
void run_last_blocks(const Args& args) {
  // So many that each block has one turn.
  auto plan = ops::plan(args, kiln_cpu::planned_device({9, 0}, 1 << 30));
  ASSERT_TRUE(plan) << plan.error().message;
  plan->resize(1);
  const auto& launch = plan->front();
  for (const auto& variant : all_variants()) {
    const bool is_it =
        variant.entry() == launch.kernel &&
        std::ranges::all_of(launch.parameters, [&](const auto& parameter) {
          return variant.param(parameter.first) == parameter.second;
        });
    if (is_it) {
      const auto geometry = variant.geometry(launch.extents);
      ASSERT_TRUE(geometry) << geometry.error().message;
      const long long last = geometry->grid[0];
      const auto done =
          kiln_cpu::run_plan(*plan, all_variants(), {.first_block = last - 4});
      ASSERT_TRUE(done) << done.error().message;
      return;
    }
  }
  FAIL() << "not compiled for the CPU";
}

class LargeNorm : public testing::TestWithParam<Configuration> {};

INSTANTIATE_TEST_SUITE_P(All, LargeNorm, testing::ValuesIn(configurations()),
                         [](const auto& each) { return name_of(each.param); });

template <typename T, typename W>
void expect_last_row_right(const Configuration& of) {
  const I64 cols = aligned_length(of);
  const I64 tail = tail_of(of);
  const I64 rows = (I64{1} << 31) / cols + tail;
  // The last rows of a problem that is small are those of the large one.
  const Problem<T, W> small(of, {.rows = tail, .cols = cols});
  SparseTensor<T> x("x", rows, cols);
  SparseTensor<T> residual("residual", rows, cols);
  SparseTensor<T> dy("dy", rows, cols);
  SparseTensor<T> out("out", rows, cols);
  SparseTensor<T> sum("sum", rows, cols);
  SparseTensor<F32> mean("mean", rows, 1);
  SparseTensor<F32> rstd("rstd", rows, 1);
  const auto size = small.x.size();
  std::copy_n(small.x.data(), size, x.row(rows - tail));
  std::copy_n(small.dy.data(), size, dy.row(rows - tail));
  if (of.residual)
    std::copy_n(small.residual.data(), size, residual.row(rows - tail));

  const auto statistics = small.statistics();
  const auto floats = [](SparseTensor<F32>& tensor) {
    return reinterpret_cast<float*>(tensor.data());
  };
  const auto fill = [&](auto& args) {
    args.dtype = of.dtype;
    args.weight_dtype = of.weight_dtype;
    args.rows = rows;
    args.cols = cols;
    args.x = x.data();
    args.weight = small.weight.data();
    args.adds_residual = of.residual;
  };
  const auto forward = [&](auto args) {
    fill(args);
    args.y = out.data();
    args.residual = residual.data();
    args.sum = sum.data();
    args.eps = 1e-5F;
    run_last_blocks(args);
  };
  const auto expect_row = [&](const Tensor<T>& want) {
    EXPECT_EQ(std::memcmp(out.row(rows - 1), want.data() + (tail - 1) * cols,
                          static_cast<std::size_t>(cols) * sizeof(T)),
              0);
    for (I64 j = 0; j < cols; ++j) EXPECT_EQ(out.row(0)[j].value(), 0) << j;
  };
  if (of.layer)
    forward(ops::LayerNormForward{.bias = small.bias.data(),
                                  .mean = floats(mean),
                                  .rstd = floats(rstd),
                                  .has_bias = small.has_bias()});
  else
    forward(ops::RmsNormForward{.rstd = floats(rstd),
                                .casting = small.llama() ? ops::RmsNormCasting::kLlama
                                                         : ops::RmsNormCasting::kNone});
  expect_row(small.forward().y);

  const auto backward = [&](auto args) {
    fill(args);
    args.dx = out.data();
    args.dy = dy.data();
    args.rstd = floats(rstd);
    args.dsum = residual.data();
    std::copy_n(statistics.rstd.data(), tail, rstd.row(rows - tail));
    if (of.layer)
      std::copy_n(statistics.mean.data(), tail, mean.row(rows - tail));
    const auto device = kiln_cpu::planned_device({9, 0}, 1 << 30);
    if constexpr (requires { args.has_bias; })
      args.workspace_bytes =
          ops::layernorm_backward_workspace_bytes(args, device).value();
    else
      args.workspace_bytes =
          ops::rmsnorm_backward_workspace_bytes(args, device).value();
    SparseTensor<F32> workspace("workspace", static_cast<I64>(args.workspace_bytes / 4),
                                1);
    args.workspace = workspace.data();
    run_last_blocks(args);
  };
  if (of.layer)
    backward(
        ops::LayerNormBackward{.mean = floats(mean), .has_bias = small.has_bias()});
  else
    backward(ops::RmsNormBackward{});
  expect_row(small.backward().dx);
}

TEST_P(LargeNorm, IsRightBeyondTwoToThe31Elements) {
  with_types(GetParam(),
             []<typename T, typename W>(std::type_identity<T>, std::type_identity<W>) {
               expect_last_row_right<T, W>(GetParam());
             });
}

}  // namespace
}  // namespace kiln::norm_test
