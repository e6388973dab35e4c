// kiln/ops/norm.h. A row of x is its last dimensions together: those of the weight, or
// the last one.

#include "call.h"
#include "python/operation_parameters.h"

namespace kiln::python {
namespace {

// The shape by `tensor`, and the weight.
template <typename Arguments>
void fit_rows(Call<Arguments>& call, const char* name, const TensorView& tensor,
              const Optional<TensorView>& weight) {
  auto& args = call.args;
  args.dtype = Tensors::dtype(name, tensor);
  const int dims = weight ? weight.value().ndim() : 1;
  if (dims < 1 || dims > tensor.ndim())
    refuse("weight has " + std::to_string(dims) + " dimensions, and " + name + " has " +
           std::to_string(tensor.ndim()));
  args.rows = args.cols = 1;
  for (int i = 0; i < tensor.ndim(); ++i)
    (i < tensor.ndim() - dims ? args.rows : args.cols) *= tensor.size(i);
  args.has_weight = weight.has_value();
  if (!weight)
    return;
  args.weight_dtype = Tensors::dtype("weight", *weight);
  Tensors::expect_elements("weight", *weight, args.cols);
}

// Without a weight the operation itself refuses it.
void fit_like_weight(const char* name, const Optional<TensorView>& tensor,
                     const Optional<TensorView>& weight) {
  if (tensor && weight)
    Tensors::expect_like(name, *tensor, "weight", *weight);
}

void fit_statistic(const char* name, const Optional<TensorView>& statistic,
                   std::int64_t rows) {
  if (!statistic)
    return;
  Tensors::expect_dtype(name, *statistic, kFloat32);
  Tensors::expect_elements(name, *statistic, rows);
}

void fit_like(const char* name, const Optional<TensorView>& tensor,
              const char* other_name, const TensorView& other) {
  if (tensor)
    Tensors::expect_like(name, *tensor, other_name, other);
}

template <typename Arguments>
void fit_forward(Call<Arguments>& call, const Parameters<Arguments>& given) {
  const TensorView& x = needed("x", given.x);
  fit_rows(call, "x", x, given.weight);
  fit_like("y", given.y, "x", x);
  fit_like("residual", given.residual, "x", x);
  fit_like("sum", given.sum, "x", x);
  fit_statistic("rstd", given.rstd, call.args.rows);
  call.args.adds_residual = given.residual.has_value();
}

// Of x, or of y with from_output.
template <typename Arguments>
void fit_backward(Call<Arguments>& call, const Parameters<Arguments>& given) {
  const bool is_output = call.args.from_output;
  const char* const name = is_output ? "y" : "x";
  const TensorView& x = needed(name, is_output ? given.y : given.x);
  fit_rows(call, name, x, given.weight);
  fit_like("dy", given.dy, name, x);
  fit_like("dx", given.dx, name, x);
  fit_like("dsum", given.dsum, name, x);
  fit_like_weight("dweight", given.dweight, given.weight);
  fit_statistic("rstd", given.rstd, call.args.rows);
  call.args.has_dweight = given.dweight.has_value();
  call.args.adds_residual = given.dsum.has_value();
}

using LayerForward = kiln_layernorm_forward_args;
std::int64_t layer_forward(Call<LayerForward>& call,
                           const Parameters<LayerForward>& given) {
  fit_forward(call, given);
  fit_like_weight("bias", given.bias, given.weight);
  fit_statistic("mean", given.mean, call.args.rows);
  call.args.has_bias = given.bias.has_value();
  return call.run(given);
}

using LayerBackward = kiln_layernorm_backward_args;
std::int64_t layer_backward(Call<LayerBackward>& call,
                            const Parameters<LayerBackward>& given) {
  fit_backward(call, given);
  fit_like_weight("bias", given.bias, given.weight);
  fit_like_weight("dbias", given.dbias, given.weight);
  fit_statistic("mean", given.mean, call.args.rows);
  return call.run(given);
}

using RmsForward = kiln_rmsnorm_forward_args;
std::int64_t rms_forward(Call<RmsForward>& call, const Parameters<RmsForward>& given) {
  fit_forward(call, given);
  return call.run(given);
}

using RmsBackward = kiln_rmsnorm_backward_args;
std::int64_t rms_backward(Call<RmsBackward>& call,
                          const Parameters<RmsBackward>& given) {
  fit_backward(call, given);
  return call.run(given);
}

}  // namespace

KILN_PYTHON_FUNCTION(layernorm_forward, layer_forward)
KILN_PYTHON_FUNCTION(layernorm_backward, layer_backward)
KILN_PYTHON_FUNCTION(rmsnorm_forward, rms_forward)
KILN_PYTHON_FUNCTION(rmsnorm_backward, rms_backward)

}  // namespace kiln::python
