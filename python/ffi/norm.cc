// kiln/ops/norm.h. A row of x is its last dimensions together, `dims` of them.

#include "call.h"

namespace kiln::python {
namespace {

constexpr Operation<kiln_layernorm_forward_args> kLayerForward{
    "layernorm_forward", KILN_LAYERNORM_FORWARD_ARGS_INIT, kiln_layernorm_forward,
    kiln_layernorm_forward_prepare};
constexpr Operation<kiln_layernorm_backward_args> kLayerBackward{
    "layernorm_backward", KILN_LAYERNORM_BACKWARD_ARGS_INIT, kiln_layernorm_backward,
    kiln_layernorm_backward_prepare, kiln_layernorm_backward_workspace};
constexpr Operation<kiln_rmsnorm_forward_args> kRmsForward{
    "rmsnorm_forward", KILN_RMSNORM_FORWARD_ARGS_INIT, kiln_rmsnorm_forward,
    kiln_rmsnorm_forward_prepare};
constexpr Operation<kiln_rmsnorm_backward_args> kRmsBackward{
    "rmsnorm_backward", KILN_RMSNORM_BACKWARD_ARGS_INIT, kiln_rmsnorm_backward,
    kiln_rmsnorm_backward_prepare, kiln_rmsnorm_backward_workspace};

// Sets `field` to the tensor, and with it the shape; and the weight.
template <typename Arguments>
void set_rows(Call<Arguments>& call, const void*& field, const char* name,
              const TensorView& tensor, const Optional<TensorView>& weight,
              std::int64_t dims) {
  auto& args = call.args;
  args.dtype = Tensors::dtype(name, tensor);
  if (dims < 1 || dims > tensor.ndim())
    refuse("dims is " + std::to_string(dims) + ", and " + name + " has " +
           std::to_string(tensor.ndim()) + " dimensions");
  args.rows = args.cols = 1;
  for (int i = 0; i < tensor.ndim(); ++i)
    (i < tensor.ndim() - dims ? args.rows : args.cols) *= tensor.size(i);
  call.set(field, name, tensor);
  args.has_weight = call.set(args.weight, "weight", weight);
  if (!weight)
    return;
  args.weight_dtype = Tensors::dtype("weight", *weight);
  Tensors::expect_elements("weight", *weight, args.cols);
}

// Sets `field` to the tensor, if there is one. Without a weight the operation itself
// refuses it.
template <typename Arguments, typename Pointer>
bool set_like_weight(Call<Arguments>& call, Pointer*& field, const char* name,
                     const Optional<TensorView>& tensor,
                     const Optional<TensorView>& weight) {
  if (tensor && weight)
    Tensors::expect_like(name, *tensor, "weight", *weight);
  return call.set(field, name, tensor);
}

template <typename Arguments>
void set_sum(Call<Arguments>& call, const TensorView& x,
             const Optional<TensorView>& residual, const Optional<TensorView>& sum) {
  auto& args = call.args;
  args.adds_residual = call.set(args.residual, "residual", residual);
  if (residual)
    Tensors::expect_like("residual", *residual, "x", x);
  if (call.set(args.sum, "sum", sum))
    Tensors::expect_like("sum", *sum, "x", x);
}

template <typename Arguments, typename Pointer>
void set_statistic(Call<Arguments>& call, Pointer*& field, const char* name,
                   const Optional<TensorView>& statistic) {
  if (!statistic)
    return;
  Tensors::expect_dtype(name, *statistic, kFloat32);
  Tensors::expect_elements(name, *statistic, call.args.rows);
  call.set(field, name, *statistic);
}

// `x` is y if from_output.
template <typename Arguments>
void set_gradients(Call<Arguments>& call, const TensorView& dx,
                   const Optional<TensorView>& dweight, const TensorView& dy,
                   const TensorView& x, const Optional<TensorView>& weight,
                   const TensorView& rstd, const Optional<TensorView>& dsum,
                   std::int64_t dims, bool from_output) {
  auto& args = call.args;
  args.from_output = from_output;
  const char* const name = from_output ? "y" : "x";
  set_rows(call, from_output ? args.y : args.x, name, x, weight, dims);
  Tensors::expect_like("dy", dy, name, x);
  Tensors::expect_like("dx", dx, name, x);
  call.set(args.dy, "dy", dy);
  call.set(args.dx, "dx", dx);
  args.has_dweight = set_like_weight(call, args.dweight, "dweight", dweight, weight);
  set_statistic(call, args.rstd, "rstd", rstd);
  args.adds_residual = call.set(args.dsum, "dsum", dsum);
  if (dsum)
    Tensors::expect_like("dsum", *dsum, name, x);
}

std::int64_t layer_forward(std::int64_t action, std::int64_t device, TensorView y,
                           Optional<TensorView> mean, Optional<TensorView> rstd,
                           Optional<TensorView> sum, TensorView x,
                           Optional<TensorView> weight, Optional<TensorView> bias,
                           Optional<TensorView> residual, std::int64_t dims, double eps,
                           bool zero_centered_weight) {
  Call call(kLayerForward, action, device);
  auto& args = call.args;
  set_rows(call, args.x, "x", x, weight, dims);
  Tensors::expect_like("y", y, "x", x);
  call.set(args.y, "y", y);
  args.has_bias = set_like_weight(call, args.bias, "bias", bias, weight);
  set_statistic(call, args.mean, "mean", mean);
  set_statistic(call, args.rstd, "rstd", rstd);
  set_sum(call, x, residual, sum);
  args.eps = static_cast<float>(eps);
  args.zero_centered_weight = zero_centered_weight;
  return call.run();
}

// From x there is a mean, and from y the bias that was added, if any.
std::int64_t layer_backward(std::int64_t action, std::int64_t device, TensorView dx,
                            Optional<TensorView> dweight, Optional<TensorView> dbias,
                            TensorView dy, TensorView x_or_y,
                            Optional<TensorView> weight, Optional<TensorView> bias,
                            Optional<TensorView> mean, TensorView rstd,
                            Optional<TensorView> dsum, std::int64_t dims, bool has_bias,
                            bool zero_centered_weight, bool from_output,
                            Optional<TensorView> workspace) {
  Call call(kLayerBackward, action, device);
  auto& args = call.args;
  set_gradients(call, dx, dweight, dy, x_or_y, weight, rstd, dsum, dims, from_output);
  set_statistic(call, args.mean, "mean", mean);
  args.has_bias = has_bias;
  set_like_weight(call, args.bias, "bias", bias, weight);
  set_like_weight(call, args.dbias, "dbias", dbias, weight);
  args.zero_centered_weight = zero_centered_weight;
  return call.run(args, workspace);
}

std::int64_t rms_forward(std::int64_t action, std::int64_t device, TensorView y,
                         Optional<TensorView> rstd, Optional<TensorView> sum,
                         TensorView x, Optional<TensorView> weight,
                         Optional<TensorView> residual, std::int64_t dims, double eps,
                         std::int64_t casting, bool zero_centered_weight) {
  Call call(kRmsForward, action, device);
  auto& args = call.args;
  set_rows(call, args.x, "x", x, weight, dims);
  Tensors::expect_like("y", y, "x", x);
  call.set(args.y, "y", y);
  set_statistic(call, args.rstd, "rstd", rstd);
  set_sum(call, x, residual, sum);
  args.eps = static_cast<float>(eps);
  args.casting = static_cast<kiln_rms_norm_casting>(casting);
  args.zero_centered_weight = zero_centered_weight;
  return call.run();
}

std::int64_t rms_backward(std::int64_t action, std::int64_t device, TensorView dx,
                          Optional<TensorView> dweight, TensorView dy,
                          TensorView x_or_y, Optional<TensorView> weight,
                          TensorView rstd, Optional<TensorView> dsum, std::int64_t dims,
                          std::int64_t casting, bool zero_centered_weight,
                          bool from_output, Optional<TensorView> workspace) {
  Call call(kRmsBackward, action, device);
  auto& args = call.args;
  set_gradients(call, dx, dweight, dy, x_or_y, weight, rstd, dsum, dims, from_output);
  args.casting = static_cast<kiln_rms_norm_casting>(casting);
  args.zero_centered_weight = zero_centered_weight;
  return call.run(args, workspace);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(layernorm_forward, layer_forward)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(layernorm_backward, layer_backward)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rmsnorm_forward, rms_forward)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rmsnorm_backward, rms_backward)

}  // namespace kiln::python
