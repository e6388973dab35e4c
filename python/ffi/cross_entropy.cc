// kiln/ops/cross_entropy.h: logits of [..., vocabulary], whose rows may lie apart.

#include "call.h"
#include "python/operation_parameters.h"

namespace kiln::python {
namespace {

template <typename Arguments>
std::int64_t run(Call<Arguments>& call, const Parameters<Arguments>& given) {
  Arguments& args = call.args;
  const TensorView& logits = needed("logits", given.logits);
  const TensorView& targets = needed("targets", given.targets);
  args.dtype = Tensors::dtype("logits", logits);
  args.vocabulary = logits.size(-1);
  args.rows = args.vocabulary > 0 ? logits.numel() / args.vocabulary : 0;
  args.logits_stride = call.row_stride("logits", logits);
  call.set_strided(args.logits, "logits", logits);
  Tensors::expect_elements("targets", targets, args.rows);
  if (targets.dtype().code != kDLInt || targets.dtype().bits < 32)
    refuse("targets must be int32 or int64");
  args.target_type =
      targets.dtype().bits == 32 ? KILN_TARGET_TYPE_INT32 : KILN_TARGET_TYPE_INT64;
  call.set(args.targets, "targets", targets);
  if constexpr (requires { given.dlogits; }) {
    const TensorView& dlogits = needed("dlogits", given.dlogits);
    Tensors::expect_like("dlogits", dlogits, "logits", logits);
    args.dlogits_stride = call.row_stride("dlogits", dlogits);
    call.set_strided(args.dlogits, "dlogits", dlogits);
  }
  return call.run(given);
}

}  // namespace

KILN_PYTHON_FUNCTION(cross_entropy_forward, run<kiln_cross_entropy_forward_args>)
KILN_PYTHON_FUNCTION(cross_entropy_backward, run<kiln_cross_entropy_backward_args>)

}  // namespace kiln::python
