// kiln/ops/softmax.h for x of [batch, heads, sq, skv].

#include "call.h"

namespace kiln::python {
namespace {

constexpr Operation<kiln_softmax_forward_args> kForward{
    "softmax_forward", KILN_SOFTMAX_FORWARD_ARGS_INIT, kiln_softmax_forward,
    kiln_softmax_forward_prepare};
constexpr Operation<kiln_softmax_backward_args> kBackward{
    "softmax_backward", KILN_SOFTMAX_BACKWARD_ARGS_INIT, kiln_softmax_backward,
    kiln_softmax_backward_prepare};

template <typename Arguments>
void set_shape(Arguments& args, const TensorView& x) {
  Tensors::expect_rank("x", x, 4);
  args.dtype = Tensors::dtype("x", x);
  args.batch = x.size(0);
  args.heads = x.size(1);
  args.sq = x.size(2);
  args.skv = x.size(3);
}

// `mask`: [1 or batch, 1, sq, skv] bytes; elements where it is not 0 are left out.
std::int64_t forward(std::int64_t action, std::int64_t device, TensorView y,
                     TensorView x, Optional<TensorView> mask, double scale,
                     bool causal) {
  Call call(kForward, action, device);
  auto& args = call.args;
  set_shape(args, x);
  Tensors::expect_like("y", y, "x", x);
  call.set(args.x, "x", x);
  call.set(args.y, "y", y);
  args.scale = static_cast<float>(scale);
  if (call.set(args.mask_bytes, "mask", mask)) {
    if (causal)
      refuse("mask and causal exclude each other");
    Tensors::expect_rank("mask", *mask, 4);
    if (mask.value().dtype().bits != 8)
      refuse("mask must have elements of one byte");
    args.mask = KILN_SOFTMAX_MASK_BYTES;
    args.mask_batch = mask.value().size(0);
    Tensors::expect_elements("mask", *mask, args.mask_batch * args.sq * args.skv);
  } else if (causal) {
    args.mask = KILN_SOFTMAX_CAUSAL;
  }
  return call.run();
}

std::int64_t backward(std::int64_t action, std::int64_t device, TensorView dx,
                      TensorView dy, TensorView y, double scale, std::int64_t mask) {
  Call call(kBackward, action, device);
  auto& args = call.args;
  set_shape(args, y);
  Tensors::expect_like("dy", dy, "y", y);
  Tensors::expect_like("dx", dx, "y", y);
  call.set(args.y, "y", y);
  call.set(args.dy, "dy", dy);
  call.set(args.dx, "dx", dx);
  args.scale = static_cast<float>(scale);
  args.mask = static_cast<kiln_softmax_mask>(mask);
  return call.run();
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax_forward, forward)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax_backward, backward)

}  // namespace kiln::python
