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
std::int64_t activation(Call<Arguments>& call, const Parameters<Arguments>& given) {
  fit_shape(call.args, needed("x", given.x), 1);
  return call.run(given);
}

template <typename Arguments>
std::int64_t glu(Call<Arguments>& call, const Parameters<Arguments>& given) {
  fit_shape(call.args, needed("x", given.x), given.linear ? 1 : 2);
  call.args.layout = given.linear ? KILN_GLU_LAYOUT_SPLIT : KILN_GLU_LAYOUT_PACKED;
  return call.run(given);
}

}  // namespace

KILN_PYTHON_FUNCTION(activation_forward, activation<kiln_activation_forward_args>)
KILN_PYTHON_FUNCTION(activation_backward, activation<kiln_activation_backward_args>)
KILN_PYTHON_FUNCTION(glu_forward, glu<kiln_glu_forward_args>)
KILN_PYTHON_FUNCTION(glu_backward, glu<kiln_glu_backward_args>)

}  // namespace kiln::python
