// kiln/ops/softmax.h for x of [..., sq, skv], and of fewer dimensions.

#include "call.h"
#include "python/operation_parameters.h"

namespace kiln::python {
namespace {

// The leading dimensions are heads.
template <typename Arguments>
void fit_shape(Arguments& args, const char* name, const TensorView& x) {
  const int dims = x.ndim();
  args.dtype = Tensors::dtype(name, x);
  args.batch = args.heads = 1;
  for (int i = 0; i + 2 < dims; ++i) args.heads *= x.size(i);
  args.sq = dims > 1 ? x.size(dims - 2) : 1;
  args.skv = dims > 0 ? x.size(dims - 1) : 1;
}

// [masks, 1, sq, skv] bytes, each for equally many matrices of x, in their order: of
// the leading dimensions those that have a mask each are the batch.
void fit_mask(kiln_softmax_forward_args& args, const TensorView& mask) {
  Tensors::expect_rank("mask", mask, 4);
  const std::int64_t masks = mask.size(0);
  if (masks < 1 || args.heads % masks != 0)
    refuse("mask has " + std::to_string(masks) + " masks, and x " +
           std::to_string(args.heads) + " matrices: not equally many for each");
  args.batch = args.mask_batch = masks;
  args.heads /= masks;
}

using Forward = kiln_softmax_forward_args;
std::int64_t forward(Call<Forward>& call, const Parameters<Forward>& given) {
  fit_shape(call.args, "x", needed("x", given.x));
  if (given.mask_bytes)
    fit_mask(call.args, *given.mask_bytes);
  return call.run(given);
}

using Backward = kiln_softmax_backward_args;
std::int64_t backward(Call<Backward>& call, const Parameters<Backward>& given) {
  fit_shape(call.args, "y", needed("y", given.y));
  return call.run(given);
}

}  // namespace

KILN_PYTHON_FUNCTION(softmax_forward, forward)
KILN_PYTHON_FUNCTION(softmax_backward, backward)

}  // namespace kiln::python
