// The operations. A struct of kiln/c.h is a size followed by the C++ struct, byte for
// byte.

#include <cstddef>
#include <cstring>

#include "c/handles.h"
#include "c/same_fields.h"
#include "kiln/kiln.h"

namespace kiln::c {
namespace {

KILN_SAME_FIELDS(kiln_softmax_forward_args, ops::SoftmaxForward, kBehindSize, dtype, y,
                 x, batch, heads, sq, skv, scale, mask, mask_bytes, mask_batch,
                 masked_row)
KILN_SAME_FIELDS(kiln_softmax_backward_args, ops::SoftmaxBackward, kBehindSize, dtype,
                 dx, dy, y, batch, heads, sq, skv, scale, mask)
KILN_SAME_FIELDS(kiln_layernorm_forward_args, ops::LayerNormForward, kBehindSize, dtype,
                 weight_dtype, y, x, weight, bias, mean, rstd, rows, cols, eps,
                 has_bias, zero_centered_weight, adds_residual, residual, sum,
                 has_weight)
KILN_SAME_FIELDS(kiln_layernorm_backward_args, ops::LayerNormBackward, kBehindSize,
                 dtype, weight_dtype, dx, dweight, dbias, dy, x, weight, mean, rstd,
                 rows, cols, has_bias, zero_centered_weight, has_dweight, adds_residual,
                 dsum, workspace, workspace_bytes, has_weight, from_output, y, bias)
KILN_SAME_FIELDS(kiln_rmsnorm_forward_args, ops::RmsNormForward, kBehindSize, dtype,
                 weight_dtype, y, x, weight, rstd, rows, cols, eps, casting,
                 zero_centered_weight, adds_residual, residual, sum, has_weight)
KILN_SAME_FIELDS(kiln_rmsnorm_backward_args, ops::RmsNormBackward, kBehindSize, dtype,
                 weight_dtype, dx, dweight, dy, x, weight, rstd, rows, cols, casting,
                 zero_centered_weight, has_dweight, adds_residual, dsum, workspace,
                 workspace_bytes, has_weight, from_output, y)
KILN_SAME_FIELDS(kiln_activation_forward_args, ops::ActivationForward, kBehindSize,
                 dtype, kind, y, x, has_bias, bias, rows, cols)
KILN_SAME_FIELDS(kiln_activation_backward_args, ops::ActivationBackward, kBehindSize,
                 dtype, kind, dx, dy, x, has_bias, bias, dbias, rows, cols, workspace,
                 workspace_bytes)
KILN_SAME_FIELDS(kiln_glu_forward_args, ops::GluForward, kBehindSize, dtype, kind,
                 layout, y, x, linear, has_bias, bias, has_weight, weight, rows, cols,
                 alpha, limit, offset)
KILN_SAME_FIELDS(kiln_glu_backward_args, ops::GluBackward, kBehindSize, dtype, kind,
                 layout, dx, dlinear, dy, x, linear, has_bias, bias, dbias, has_weight,
                 weight, dweight, rows, cols, alpha, limit, offset, workspace,
                 workspace_bytes)
KILN_SAME_FIELDS(kiln_rope_strides, ops::RopeStrides, kNested, batch, sequence, head,
                 dim)
KILN_SAME_FIELDS(kiln_rope_tensor, ops::RopeTensor, kNested, out, in, heads,
                 out_strides, in_strides)
KILN_SAME_FIELDS(kiln_rope_table, ops::RopeTable, kNested, angles, cos, sin, dtype,
                 positions, columns, row_stride)
KILN_SAME_FIELDS(kiln_rope_forward_args, ops::RopeArguments, kBehindSize, dtype, style,
                 batch, sequence, head_dim, rotary_dim, q, k, table, start, starts,
                 cu_seqlens)
KILN_SAME_FIELDS(kiln_cross_entropy_args, ops::CrossEntropy, kBehindSize, dtype, loss,
                 lse, dlogits, logits, targets, target_type, ignored_index, rows,
                 vocabulary, padded_vocabulary, logits_stride, dlogits_stride,
                 smoothing, scale, row_scale)
KILN_SAME_FIELDS(kiln_cross_entropy_forward_args, ops::CrossEntropyForward, kBehindSize,
                 dtype, loss, lse, saved, logits, targets, target_type, ignored_index,
                 rows, vocabulary, padded_vocabulary, logits_stride, smoothing)
KILN_SAME_FIELDS(kiln_cross_entropy_backward_args, ops::CrossEntropyBackward,
                 kBehindSize, dtype, dlogits, logits, saved, targets, target_type,
                 ignored_index, rows, vocabulary, padded_vocabulary, logits_stride,
                 dlogits_stride, smoothing, scale, row_scale)

template <typename Args, typename InC, typename Use>
kiln_result with_args(kiln_service* service, int device, const InC* args,
                      const Use& use) {
  return answer(service, [&]() -> Result<void> {
    KILN_TRY(check_struct(args, "args"));
    const Device& where = *KILN_TRY(device_of(*service, device));
    Args copy;
    // What an older caller's struct does not have keeps its default.
    std::memcpy(static_cast<void*>(&copy),
                reinterpret_cast<const std::byte*>(args) + kBehindSize,
                args->struct_size - kBehindSize);
    return use(where, copy);
  });
}

}  // namespace
}  // namespace kiln::c

#define KILN_C_OPERATION(function, Args)                                             \
  kiln_result kiln_##function(kiln_service* service, int device, kiln_stream stream, \
                              const kiln_##function##_args* args) {                  \
    return kiln::c::with_args<kiln::ops::Args>(                                      \
        service, device, args, [&](const kiln::Device& where, const auto& copy) {    \
          return kiln::ops::function(service->service, where, stream, copy);         \
        });                                                                          \
  }                                                                                  \
  kiln_result kiln_##function##_prepare(kiln_service* service, int device,           \
                                        const kiln_##function##_args* args) {        \
    return kiln::c::with_args<kiln::ops::Args>(                                      \
        service, device, args, [&](const kiln::Device& where, const auto& copy) {    \
          return kiln::ops::prepare(service->service, where, copy);                  \
        });                                                                          \
  }

#define KILN_C_WORKSPACE(function, Args)                                         \
  kiln_result kiln_##function##_workspace(kiln_service* service, int device,     \
                                          const kiln_##function##_args* args,    \
                                          uint64_t* bytes) {                     \
    return kiln::c::with_args<kiln::ops::Args>(                                  \
        service, device, args,                                                   \
        [&](const kiln::Device& where, const auto& copy) -> kiln::Result<void> { \
          KILN_TRY(kiln::c::given(bytes, "bytes"));                              \
          *bytes = KILN_TRY(kiln::ops::function##_workspace_bytes(where, copy)); \
          return {};                                                             \
        });                                                                      \
  }

KILN_C_OPERATION(softmax_forward, SoftmaxForward)
KILN_C_OPERATION(softmax_backward, SoftmaxBackward)
KILN_C_OPERATION(layernorm_forward, LayerNormForward)
KILN_C_OPERATION(layernorm_backward, LayerNormBackward)
KILN_C_WORKSPACE(layernorm_backward, LayerNormBackward)
KILN_C_OPERATION(rmsnorm_forward, RmsNormForward)
KILN_C_OPERATION(rmsnorm_backward, RmsNormBackward)
KILN_C_WORKSPACE(rmsnorm_backward, RmsNormBackward)
KILN_C_OPERATION(activation_forward, ActivationForward)
KILN_C_OPERATION(activation_backward, ActivationBackward)
KILN_C_WORKSPACE(activation_backward, ActivationBackward)
KILN_C_OPERATION(glu_forward, GluForward)
KILN_C_OPERATION(glu_backward, GluBackward)
KILN_C_WORKSPACE(glu_backward, GluBackward)
KILN_C_OPERATION(rope_forward, RopeForward)
KILN_C_OPERATION(rope_backward, RopeBackward)
KILN_C_OPERATION(cross_entropy, CrossEntropy)
KILN_C_OPERATION(cross_entropy_forward, CrossEntropyForward)
KILN_C_OPERATION(cross_entropy_backward, CrossEntropyBackward)
