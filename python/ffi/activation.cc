// kiln/ops/activation.h. Rows are all dimensions of a tensor but its last.

#include "call.h"

namespace kiln::python {
namespace {

constexpr Operation<kiln_activation_forward_args> kForward{
    "activation_forward", KILN_ACTIVATION_FORWARD_ARGS_INIT, kiln_activation_forward,
    kiln_activation_forward_prepare};
constexpr Operation<kiln_activation_backward_args> kBackward{
    "activation_backward", KILN_ACTIVATION_BACKWARD_ARGS_INIT, kiln_activation_backward,
    kiln_activation_backward_prepare, kiln_activation_backward_workspace};
constexpr Operation<kiln_glu_forward_args> kGluForward{
    "glu_forward", KILN_GLU_FORWARD_ARGS_INIT, kiln_glu_forward,
    kiln_glu_forward_prepare};
constexpr Operation<kiln_glu_backward_args> kGluBackward{
    "glu_backward", KILN_GLU_BACKWARD_ARGS_INIT, kiln_glu_backward,
    kiln_glu_backward_prepare, kiln_glu_backward_workspace};

// `columns` of the last dimension belong to one element of y: 2 if gate and linear
// input are packed.
template <typename Arguments>
void set_shape(Call<Arguments>& call, const TensorView& x, std::int64_t columns) {
  auto& args = call.args;
  args.dtype = Tensors::dtype("x", x);
  if (x.ndim() == 0)
    refuse("x has no dimension");
  const std::int64_t last = x.size(-1);
  if (last % columns != 0)
    refuse("the last dimension of x is " + std::to_string(last) + ", which is odd");
  args.cols = last / columns;
  args.rows = 1;
  for (int i = 0; i + 1 < x.ndim(); ++i) args.rows *= x.size(i);
  call.set(args.x, "x", x);
}

template <typename Arguments>
void set_bias(Call<Arguments>& call, const Optional<TensorView>& bias,
              const TensorView& x, std::int64_t elements) {
  auto& args = call.args;
  args.has_bias = call.set(args.bias, "bias", bias);
  if (!bias)
    return;
  Tensors::expect_dtype("bias", *bias, x.dtype());
  Tensors::expect_elements("bias", *bias, elements);
}

template <typename Arguments>
void set_glu(Call<Arguments>& call, const TensorView& x,
             const Optional<TensorView>& linear, const Optional<TensorView>& bias,
             std::int64_t kind, const tvm::ffi::Tuple<double, double, double>& clamp) {
  auto& args = call.args;
  set_shape(call, x, linear ? 1 : 2);
  args.kind = static_cast<kiln_glu_kind>(kind);
  args.layout = linear ? KILN_GLU_LAYOUT_SPLIT : KILN_GLU_LAYOUT_PACKED;
  if (call.set(args.linear, "linear", linear))
    Tensors::expect_like("linear", *linear, "x", x);
  set_bias(call, bias, x, 2 * args.cols);
  if (args.kind == KILN_GLU_KIND_CLAMPED_SWIGLU) {
    args.alpha = static_cast<float>(clamp.template get<0>());
    args.limit = static_cast<float>(clamp.template get<1>());
    args.offset = static_cast<float>(clamp.template get<2>());
  }
}

template <typename Arguments>
void expect_output(const Call<Arguments>& call, const char* name, const TensorView& y,
                   const TensorView& x) {
  Tensors::expect_dtype(name, y, x.dtype());
  Tensors::expect_elements(name, y, call.args.rows * call.args.cols);
}

std::int64_t forward(std::int64_t action, std::int64_t device, TensorView y,
                     TensorView x, Optional<TensorView> bias, std::int64_t kind) {
  Call call(kForward, action, device);
  set_shape(call, x, 1);
  expect_output(call, "y", y, x);
  call.set(call.args.y, "y", y);
  set_bias(call, bias, x, call.args.cols);
  call.args.kind = static_cast<kiln_activation_kind>(kind);
  return call.run();
}

std::int64_t backward(std::int64_t action, std::int64_t device, TensorView dx,
                      Optional<TensorView> dbias, TensorView dy, TensorView x,
                      Optional<TensorView> bias, std::int64_t kind,
                      Optional<TensorView> workspace) {
  Call call(kBackward, action, device);
  auto& args = call.args;
  set_shape(call, x, 1);
  Tensors::expect_like("dx", dx, "x", x);
  Tensors::expect_like("dy", dy, "x", x);
  call.set(args.dx, "dx", dx);
  call.set(args.dy, "dy", dy);
  set_bias(call, bias, x, args.cols);
  call.set(args.dbias, "dbias", dbias);
  args.kind = static_cast<kiln_activation_kind>(kind);
  return call.run(args, workspace);
}

// `clamp`: alpha, limit and offset of KILN_GLU_KIND_CLAMPED_SWIGLU.
std::int64_t glu_forward(std::int64_t action, std::int64_t device, TensorView y,
                         TensorView x, Optional<TensorView> linear,
                         Optional<TensorView> bias, std::int64_t kind,
                         tvm::ffi::Tuple<double, double, double> clamp) {
  Call call(kGluForward, action, device);
  set_glu(call, x, linear, bias, kind, clamp);
  expect_output(call, "y", y, x);
  call.set(call.args.y, "y", y);
  return call.run();
}

std::int64_t glu_backward(std::int64_t action, std::int64_t device, TensorView dx,
                          Optional<TensorView> dlinear, Optional<TensorView> dbias,
                          TensorView dy, TensorView x, Optional<TensorView> linear,
                          Optional<TensorView> bias, std::int64_t kind,
                          tvm::ffi::Tuple<double, double, double> clamp,
                          Optional<TensorView> workspace) {
  Call call(kGluBackward, action, device);
  auto& args = call.args;
  set_glu(call, x, linear, bias, kind, clamp);
  expect_output(call, "dy", dy, x);
  Tensors::expect_like("dx", dx, "x", x);
  call.set(args.dy, "dy", dy);
  call.set(args.dx, "dx", dx);
  call.set(args.dlinear, "dlinear", dlinear);
  call.set(args.dbias, "dbias", dbias);
  return call.run(args, workspace);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(activation_forward, forward)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(activation_backward, backward)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(glu_forward, glu_forward)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(glu_backward, glu_backward)

}  // namespace kiln::python
