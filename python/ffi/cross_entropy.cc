// kiln/ops/cross_entropy.h: logits of [rows, vocabulary], whose rows may lie apart.

#include "call.h"

namespace kiln::python {
namespace {

constexpr Operation<kiln_cross_entropy_forward_args> kForward{
    "cross_entropy_forward", KILN_CROSS_ENTROPY_FORWARD_ARGS_INIT,
    kiln_cross_entropy_forward, kiln_cross_entropy_forward_prepare};
constexpr Operation<kiln_cross_entropy_backward_args> kBackward{
    "cross_entropy_backward", KILN_CROSS_ENTROPY_BACKWARD_ARGS_INIT,
    kiln_cross_entropy_backward, kiln_cross_entropy_backward_prepare};

std::int64_t row_stride(const char* name, const TensorView& rows) {
  if (rows.size(1) > 1 && rows.stride(1) != 1)
    refuse(std::string("the last dimension of ") + name + " is not contiguous");
  return rows.size(0) > 1 ? rows.stride(0) : rows.size(1);
}

template <typename Arguments>
void set_inputs(Call<Arguments>& call, const TensorView& logits,
                const TensorView& targets, std::int64_t ignored_index,
                double smoothing) {
  auto& args = call.args;
  args.dtype = Tensors::dtype("logits", logits);
  Tensors::expect_rank("logits", logits, 2);
  args.rows = logits.size(0);
  args.vocabulary = logits.size(1);
  args.logits_stride = row_stride("logits", logits);
  call.set_strided(args.logits, "logits", logits);
  Tensors::expect_elements("target", targets, args.rows);
  if (targets.dtype().code != kDLInt || targets.dtype().bits < 32)
    refuse("target must be int32 or int64");
  args.target_type =
      targets.dtype().bits == 32 ? KILN_TARGET_TYPE_INT32 : KILN_TARGET_TYPE_INT64;
  call.set(args.targets, "target", targets);
  args.ignored_index = ignored_index;
  args.smoothing = static_cast<float>(smoothing);
}

// Numbers of each row.
template <typename Arguments, typename Pointer>
void set_of_rows(Call<Arguments>& call, Pointer*& field, const char* name,
                 const TensorView& tensor, std::int64_t numbers = 1) {
  Tensors::expect_dtype(name, tensor, kFloat32);
  Tensors::expect_elements(name, tensor, numbers * call.args.rows);
  call.set(field, name, tensor);
}

// `loss`, `lse`: [rows]; `saved`: [rows, 2]; all float32.
std::int64_t forward(std::int64_t action, std::int64_t device, TensorView loss,
                     Optional<TensorView> lse, Optional<TensorView> saved,
                     TensorView logits, TensorView target, std::int64_t ignored_index,
                     double smoothing) {
  Call call(kForward, action, device);
  auto& args = call.args;
  set_inputs(call, logits, target, ignored_index, smoothing);
  set_of_rows(call, args.loss, "loss", loss);
  if (lse)
    set_of_rows(call, args.lse, "lse", *lse);
  if (saved)
    set_of_rows(call, args.saved, "saved", *saved, 2);
  return call.run();
}

// `row_scale`: [rows] float32, a factor of each row's gradient.
std::int64_t backward(std::int64_t action, std::int64_t device, TensorView dlogits,
                      TensorView logits, TensorView saved, TensorView target,
                      Optional<TensorView> row_scale, std::int64_t ignored_index,
                      double smoothing, double scale) {
  Call call(kBackward, action, device);
  auto& args = call.args;
  set_inputs(call, logits, target, ignored_index, smoothing);
  Tensors::expect_like("dlogits", dlogits, "logits", logits);
  args.dlogits_stride = row_stride("dlogits", dlogits);
  call.set_strided(args.dlogits, "dlogits", dlogits);
  set_of_rows(call, args.saved, "saved", saved, 2);
  if (row_scale)
    set_of_rows(call, args.row_scale, "row_scale", *row_scale);
  args.scale = static_cast<float>(scale);
  return call.run();
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(cross_entropy_forward, forward)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(cross_entropy_backward, backward)

}  // namespace kiln::python
