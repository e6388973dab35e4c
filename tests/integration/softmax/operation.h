// Both softmax operations of one problem, one after the other, against the reference.

#pragma once

#include <algorithm>
#include <tuple>

#include "kiln/ops/softmax.h"
#include "tests/integration/softmax/tensors.h"

namespace kiln::softmax_test {

[[nodiscard]] inline Kind kind_of(ops::SoftmaxMask mask) {
  return mask == ops::SoftmaxMask::kNone    ? Kind::kPlain
         : mask == ops::SoftmaxMask::kBytes ? Kind::kMasked
                                            : Kind::kCausal;
}

template <typename Args>
[[nodiscard]] Args arguments(ops::DType dtype, ops::SoftmaxMask mask,
                             const Shape& shape) {
  Args args;
  args.dtype = dtype;
  args.mask = mask;
  args.batch = shape.batch;
  args.heads = shape.heads;
  args.sq = shape.sq;
  args.skv = shape.cols;
  return args;
}

/// `run` is called with the arguments of each operation.
template <typename T, typename Run>
void check_operations(ops::DType dtype, ops::SoftmaxMask mask, const Shape& shape,
                      const Run& run, bool is_uniform = false) {
  SCOPED_TRACE(testing::Message() << shape);
  const Kind kind = kind_of(mask);
  const Setting setting{.scale = 0.25F};
  Tensors<T> forward({kind, true, is_uniform}, shape, setting);
  Tensor<T> y = forward.make_out();
  auto args = arguments<ops::SoftmaxForward>(dtype, mask, shape);
  args.y = y.data();
  args.x = forward.in().data();
  if (mask == ops::SoftmaxMask::kBytes)
    args.mask_bytes = forward.mask().bytes;
  if (is_uniform)
    args.masked_row = ops::SoftmaxMaskedRow::kUniform;
  args.scale = setting.scale;
  run(args);
  std::ignore = forward.check(y);
  if (is_uniform)  // a backward kernel knows no such rows
    return;

  Tensors<T> backward({kind, false}, shape, setting);
  std::ranges::copy(y, backward.y().begin());
  Tensor<T> dx = backward.make_out();
  auto gradient_args = arguments<ops::SoftmaxBackward>(dtype, mask, shape);
  gradient_args.dx = dx.data();
  gradient_args.dy = backward.in().data();
  gradient_args.y = backward.y().data();
  gradient_args.scale = setting.scale;
  run(gradient_args);
  std::ignore = backward.check(dx);
}

}  // namespace kiln::softmax_test
