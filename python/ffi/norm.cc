// kiln/ops/norm.h. A row of x is its last dimensions together: those of the weight, or
// the last one.

#include "call.h"
#include "python/operation_parameters.h"

namespace kiln::python {
namespace {

/// Of x, or of y with from_output.
template <typename Arguments>
std::int64_t run(Call<Arguments>& call, const Parameters<Arguments>& given) {
  auto& args = call.args;
  const Optional<TensorView>* rows = &given.x;
  const char* name = "x";
  if constexpr (requires { args.from_output; })
    if (args.from_output) {
      rows = &given.y;
      name = "y";
    }
  const TensorView& tensor = needed(name, *rows);
  const int dims = given.weight ? given.weight.value().ndim() : 1;
  if (dims < 1 || dims > tensor.ndim())
    refuse("weight has " + std::to_string(dims) + " dimensions, and " + name + " has " +
           std::to_string(tensor.ndim()));
  args.dtype = Tensors::dtype(name, tensor);
  args.rows = args.cols = 1;
  for (int i = 0; i < tensor.ndim(); ++i)
    (i < tensor.ndim() - dims ? args.rows : args.cols) *= tensor.size(i);
  if (given.weight)
    args.weight_dtype = Tensors::dtype("weight", *given.weight);
  return call.run(given);
}

}  // namespace

KILN_PYTHON_FUNCTION(layernorm_forward, run<kiln_layernorm_forward_args>)
KILN_PYTHON_FUNCTION(layernorm_backward, run<kiln_layernorm_backward_args>)
KILN_PYTHON_FUNCTION(rmsnorm_forward, run<kiln_rmsnorm_forward_args>)
KILN_PYTHON_FUNCTION(rmsnorm_backward, run<kiln_rmsnorm_backward_args>)

}  // namespace kiln::python
