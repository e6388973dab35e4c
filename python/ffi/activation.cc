// kiln/ops/activation.h. Rows are all dimensions of a tensor but its last.

#include "call.h"
#include "python/operation_parameters.h"

namespace kiln::python {
namespace {

// `columns` of the last dimension belong to one element of y: 2 if gate and linear
// input are packed.
template <typename Arguments>
void fit_shape(Arguments& args, const TensorView& x, std::int64_t columns) {
  args.dtype = Tensors::dtype("x", x);
  if (x.ndim() == 0)
    refuse("x has no dimension");
  const std::int64_t last = x.size(-1);
  if (last % columns != 0)
    refuse("the last dimension of x is " + std::to_string(last) + ", which is odd");
  args.cols = last / columns;
  args.rows = 1;
  for (int i = 0; i + 1 < x.ndim(); ++i) args.rows *= x.size(i);
}

template <typename Arguments>
void fit_bias(Arguments& args, const Optional<TensorView>& bias, const TensorView& x,
              std::int64_t elements) {
  args.has_bias = bias.has_value();
  if (!bias)
    return;
  Tensors::expect_dtype("bias", *bias, x.dtype());
  Tensors::expect_elements("bias", *bias, elements);
}

void expect_output(const char* name, const Optional<TensorView>& y, const TensorView& x,
                   std::int64_t elements) {
  Tensors::expect_dtype(name, needed(name, y), x.dtype());
  Tensors::expect_elements(name, *y, elements);
}

using Forward = kiln_activation_forward_args;
std::int64_t forward(Call<Forward>& call, const Parameters<Forward>& given) {
  const TensorView& x = needed("x", given.x);
  fit_shape(call.args, x, 1);
  expect_output("y", given.y, x, call.args.rows * call.args.cols);
  fit_bias(call.args, given.bias, x, call.args.cols);
  return call.run(given);
}

using Backward = kiln_activation_backward_args;
std::int64_t backward(Call<Backward>& call, const Parameters<Backward>& given) {
  const TensorView& x = needed("x", given.x);
  fit_shape(call.args, x, 1);
  Tensors::expect_like("dx", needed("dx", given.dx), "x", x);
  Tensors::expect_like("dy", needed("dy", given.dy), "x", x);
  fit_bias(call.args, given.bias, x, call.args.cols);
  return call.run(given);
}

// Returns x.
template <typename Arguments>
const TensorView& fit_glu(Call<Arguments>& call, const Parameters<Arguments>& given) {
  auto& args = call.args;
  const TensorView& x = needed("x", given.x);
  fit_shape(args, x, given.linear ? 1 : 2);
  args.layout = given.linear ? KILN_GLU_LAYOUT_SPLIT : KILN_GLU_LAYOUT_PACKED;
  if (given.linear)
    Tensors::expect_like("linear", *given.linear, "x", x);
  fit_bias(args, given.bias, x, 2 * args.cols);
  args.has_weight = given.weight.has_value();
  if (given.weight) {
    Tensors::expect_dtype("weight", *given.weight, kFloat32);
    Tensors::expect_elements("weight", *given.weight, args.rows);
  }
  return x;
}

using GluForward = kiln_glu_forward_args;
std::int64_t glu_forward(Call<GluForward>& call, const Parameters<GluForward>& given) {
  const TensorView& x = fit_glu(call, given);
  expect_output("y", given.y, x, call.args.rows * call.args.cols);
  return call.run(given);
}

using GluBackward = kiln_glu_backward_args;
std::int64_t glu_backward(Call<GluBackward>& call,
                          const Parameters<GluBackward>& given) {
  const TensorView& x = fit_glu(call, given);
  expect_output("dy", given.dy, x, call.args.rows * call.args.cols);
  Tensors::expect_like("dx", needed("dx", given.dx), "x", x);
  return call.run(given);
}

}  // namespace

KILN_PYTHON_FUNCTION(activation_forward, forward)
KILN_PYTHON_FUNCTION(activation_backward, backward)
KILN_PYTHON_FUNCTION(glu_forward, glu_forward)
KILN_PYTHON_FUNCTION(glu_backward, glu_backward)

}  // namespace kiln::python
