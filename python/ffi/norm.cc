// kiln/ops/norm.h for rows of x, which are its last dimensions: as many elements as the
// weight has.

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

template <typename Arguments>
void set_shape(Call<Arguments>& call, const TensorView& x, const TensorView& weight) {
  auto& args = call.args;
  args.dtype = Tensors::dtype("x", x);
  args.weight_dtype = Tensors::dtype("weight", weight);
  args.cols = weight.numel();
  if (args.cols == 0 || x.numel() % args.cols != 0)
    refuse("x has no whole number of rows of the weight's " +
           std::to_string(args.cols) + " elements");
  args.rows = x.numel() / args.cols;
  call.set(args.x, "x", x);
  call.set(args.weight, "weight", weight);
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

template <typename Arguments>
void set_gradients(Call<Arguments>& call, const TensorView& dx, const TensorView& dy,
                   const TensorView& x, const TensorView& rstd,
                   const Optional<TensorView>& dsum) {
  auto& args = call.args;
  Tensors::expect_like("dy", dy, "x", x);
  Tensors::expect_like("dx", dx, "x", x);
  call.set(args.dy, "dy", dy);
  call.set(args.dx, "dx", dx);
  Tensors::expect_dtype("rstd", rstd, kFloat32);
  Tensors::expect_elements("rstd", rstd, args.rows);
  call.set(args.rstd, "rstd", rstd);
  args.adds_residual = call.set(args.dsum, "dsum", dsum);
  if (dsum)
    Tensors::expect_like("dsum", *dsum, "x", x);
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

std::int64_t layer_forward(std::int64_t action, std::int64_t device, TensorView y,
                           Optional<TensorView> mean, Optional<TensorView> rstd,
                           Optional<TensorView> sum, TensorView x, TensorView weight,
                           Optional<TensorView> bias, Optional<TensorView> residual,
                           double eps, bool zero_centered_weight) {
  Call call(kLayerForward, action, device);
  auto& args = call.args;
  set_shape(call, x, weight);
  Tensors::expect_like("y", y, "x", x);
  call.set(args.y, "y", y);
  args.has_bias = call.set(args.bias, "bias", bias);
  if (bias)
    Tensors::expect_like("bias", *bias, "weight", weight);
  set_statistic(call, args.mean, "mean", mean);
  set_statistic(call, args.rstd, "rstd", rstd);
  set_sum(call, x, residual, sum);
  args.eps = static_cast<float>(eps);
  args.zero_centered_weight = zero_centered_weight;
  return call.run();
}

std::int64_t layer_backward(std::int64_t action, std::int64_t device, TensorView dx,
                            Optional<TensorView> dweight, Optional<TensorView> dbias,
                            TensorView dy, TensorView x, TensorView weight,
                            TensorView mean, TensorView rstd, Optional<TensorView> dsum,
                            bool has_bias, bool zero_centered_weight,
                            Optional<TensorView> workspace) {
  Call call(kLayerBackward, action, device);
  auto& args = call.args;
  set_shape(call, x, weight);
  set_gradients(call, dx, dy, x, rstd, dsum);
  Tensors::expect_dtype("mean", mean, kFloat32);
  Tensors::expect_elements("mean", mean, args.rows);
  call.set(args.mean, "mean", mean);
  args.has_dweight = call.set(args.dweight, "dweight", dweight);
  args.has_bias = has_bias;
  call.set(args.dbias, "dbias", dbias);
  args.zero_centered_weight = zero_centered_weight;
  call.set_workspace(workspace);
  return call.run();
}

std::int64_t rms_forward(std::int64_t action, std::int64_t device, TensorView y,
                         Optional<TensorView> rstd, Optional<TensorView> sum,
                         TensorView x, TensorView weight, Optional<TensorView> residual,
                         double eps, std::int64_t casting, bool zero_centered_weight) {
  Call call(kRmsForward, action, device);
  auto& args = call.args;
  set_shape(call, x, weight);
  Tensors::expect_like("y", y, "x", x);
  call.set(args.y, "y", y);
  set_statistic(call, args.rstd, "rstd", rstd);
  set_sum(call, x, residual, sum);
  args.eps = static_cast<float>(eps);
  args.casting = static_cast<kiln_rmsnorm_casting>(casting);
  args.zero_centered_weight = zero_centered_weight;
  return call.run();
}

std::int64_t rms_backward(std::int64_t action, std::int64_t device, TensorView dx,
                          Optional<TensorView> dweight, TensorView dy, TensorView x,
                          TensorView weight, TensorView rstd, Optional<TensorView> dsum,
                          std::int64_t casting, bool zero_centered_weight,
                          Optional<TensorView> workspace) {
  Call call(kRmsBackward, action, device);
  auto& args = call.args;
  set_shape(call, x, weight);
  set_gradients(call, dx, dy, x, rstd, dsum);
  args.has_dweight = call.set(args.dweight, "dweight", dweight);
  args.casting = static_cast<kiln_rmsnorm_casting>(casting);
  args.zero_centered_weight = zero_centered_weight;
  call.set_workspace(workspace);
  return call.run();
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(layernorm_forward, layer_forward)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(layernorm_backward, layer_backward)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rmsnorm_forward, rms_forward)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rmsnorm_backward, rms_backward)

}  // namespace kiln::python
