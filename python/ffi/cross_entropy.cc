// kiln/ops/cross_entropy.h: logits of [rows, vocabulary], whose rows may lie apart.

#include "call.h"
#include "python/operation_parameters.h"

namespace kiln::python {
namespace {

std::int64_t row_stride(const char* name, const TensorView& rows) {
  if (rows.size(1) > 1 && rows.stride(1) != 1)
    refuse(std::string("the last dimension of ") + name + " is not contiguous");
  return rows.size(0) > 1 ? rows.stride(0) : rows.size(1);
}

template <typename Arguments>
void set_inputs(Call<Arguments>& call, const Parameters<Arguments>& given) {
  auto& args = call.args;
  const TensorView& logits = needed("logits", given.logits);
  const TensorView& targets = needed("target", given.targets);
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
}

using Forward = kiln_cross_entropy_forward_args;
std::int64_t forward(Call<Forward>& call, const Parameters<Forward>& given) {
  set_inputs(call, given);
  return call.run(given);
}

using Backward = kiln_cross_entropy_backward_args;
std::int64_t backward(Call<Backward>& call, const Parameters<Backward>& given) {
  set_inputs(call, given);
  const TensorView& dlogits = needed("dlogits", given.dlogits);
  Tensors::expect_like("dlogits", dlogits, "logits", *given.logits);
  call.args.dlogits_stride = row_stride("dlogits", dlogits);
  call.set_strided(call.args.dlogits, "dlogits", dlogits);
  return call.run(given);
}

}  // namespace

KILN_PYTHON_FUNCTION(cross_entropy_forward, forward)
KILN_PYTHON_FUNCTION(cross_entropy_backward, backward)

}  // namespace kiln::python
