// kiln/ops/softmax.h for x of [..., sq, skv], and of fewer dimensions.

#include "call.h"

namespace kiln::python {
namespace {

constexpr Operation<kiln_softmax_forward_args> kForward{
    "softmax_forward", KILN_SOFTMAX_FORWARD_ARGS_INIT, kiln_softmax_forward,
    kiln_softmax_forward_prepare};
constexpr Operation<kiln_softmax_backward_args> kBackward{
    "softmax_backward", KILN_SOFTMAX_BACKWARD_ARGS_INIT, kiln_softmax_backward,
    kiln_softmax_backward_prepare};

// The leading dimensions are heads.
template <typename Arguments>
void set_shape(Arguments& args, const TensorView& x) {
  const int dims = x.ndim();
  args.dtype = Tensors::dtype("x", x);
  args.batch = args.heads = 1;
  for (int i = 0; i + 2 < dims; ++i) args.heads *= x.size(i);
  args.sq = dims > 1 ? x.size(dims - 2) : 1;
  args.skv = dims > 0 ? x.size(dims - 1) : 1;
}

// Of the leading dimensions, those that have a mask each are the batch.
void set_mask(Call<kiln_softmax_forward_args>& call, const TensorView& mask) {
  auto& args = call.args;
  Tensors::expect_rank("mask", mask, 4);
  if (mask.dtype().bits != 8)
    refuse("mask must have elements of one byte");
  const std::int64_t masks = mask.size(0);
  if (masks < 1 || args.heads % masks != 0)
    refuse("mask has " + std::to_string(masks) + " masks, and x " +
           std::to_string(args.heads) + " matrices: not equally many for each");
  Tensors::expect_elements("mask", mask, masks * args.sq * args.skv);
  args.mask = KILN_SOFTMAX_MASK_BYTES;
  args.batch = args.mask_batch = masks;
  args.heads /= masks;
  call.set(args.mask_bytes, "mask", mask);
}

// `mask`: [masks, 1, sq, skv] bytes, each for equally many matrices of x, in their
// order; elements where it is not 0 are left out. `uniform`: a row without an element
// has equal ones.
std::int64_t forward(std::int64_t action, std::int64_t device, TensorView y,
                     TensorView x, Optional<TensorView> mask, double scale, bool causal,
                     bool uniform) {
  Call call(kForward, action, device);
  auto& args = call.args;
  set_shape(args, x);
  Tensors::expect_like("y", y, "x", x);
  call.set(args.x, "x", x);
  call.set(args.y, "y", y);
  args.scale = static_cast<float>(scale);
  if (mask && causal)
    refuse("mask and causal exclude each other");
  if (mask)
    set_mask(call, *mask);
  else if (causal)
    args.mask = KILN_SOFTMAX_MASK_CAUSAL;
  if (uniform)
    args.masked_row = KILN_SOFTMAX_MASKED_ROW_UNIFORM;
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
