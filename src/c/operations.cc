// The operations. A struct of kiln/c.h is the C++ struct behind its size, byte for
// byte.

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "c/handles.h"
#include "kiln/kiln.h"

namespace kiln::c {
namespace {

/// What stands in front of the first field in C.
constexpr std::size_t kBehindSize = sizeof(std::size_t);
constexpr std::size_t kNested = 0;

/// The same type, or an enumeration or a struct of the same size.
template <typename InC, typename InCpp>
constexpr bool kSameType = std::is_same_v<InC, InCpp> ||
                           (sizeof(InC) == sizeof(InCpp) &&
                            (std::is_enum_v<InCpp> || std::is_class_v<InCpp>));

struct Anything {
  template <typename Type>
  operator Type() const;  // NOLINT(google-explicit-constructor): stands for any field
};
template <typename Struct, typename... Fields>
consteval std::size_t field_count() {
  if constexpr (requires { Struct{Fields{}..., Anything{}}; })
    return field_count<Struct, Fields..., Anything>();
  else
    return sizeof...(Fields);
}

// KILN_SAME_FIELDS(InC, InCpp, front, field...): the fields are all that InCpp has, and
// have the same types and, behind `front` bytes, the same places in InC.
#define KILN_SAME_FIELDS(InC, InCpp, front, ...)                                      \
  static_assert(sizeof(InC) == sizeof(InCpp) + (front));                              \
  static_assert(field_count<InCpp>() == 0 KILN_EXPAND(KILN_EACH(KILN_ONE, InC, InCpp, \
                                                                front, __VA_ARGS__)), \
                #InCpp " has a field that " #InC " has not");                         \
  KILN_EXPAND(KILN_EACH(KILN_SAME_FIELD, InC, InCpp, front, __VA_ARGS__))
#define KILN_ONE(InC, InCpp, front, field) +1
#define KILN_SAME_FIELD(InC, InCpp, front, field)                          \
  static_assert(offsetof(InC, field) == offsetof(InCpp, field) + (front)); \
  static_assert(kSameType<decltype(InC::field), decltype(InCpp::field)>);
// The preprocessor's recursion: a macro is expanded once in each of 27 scans.
#define KILN_EACH(what, InC, InCpp, front, field, ...) \
  what(InC, InCpp, front, field) __VA_OPT__(           \
      KILN_EACH_AGAIN KILN_PARENTHESES(what, InC, InCpp, front, __VA_ARGS__))
#define KILN_EACH_AGAIN() KILN_EACH
#define KILN_PARENTHESES ()
#define KILN_EXPAND(...) KILN_EXPAND_9(KILN_EXPAND_9(KILN_EXPAND_9(__VA_ARGS__)))
#define KILN_EXPAND_9(...) KILN_EXPAND_3(KILN_EXPAND_3(KILN_EXPAND_3(__VA_ARGS__)))
#define KILN_EXPAND_3(...) KILN_EXPAND_1(KILN_EXPAND_1(KILN_EXPAND_1(__VA_ARGS__)))
#define KILN_EXPAND_1(...) __VA_ARGS__

KILN_SAME_FIELDS(kiln_softmax_forward_args, ops::SoftmaxForward, kBehindSize, dtype, y,
                 x, batch, heads, sq, skv, scale, mask, mask_bytes, mask_batch)
KILN_SAME_FIELDS(kiln_softmax_backward_args, ops::SoftmaxBackward, kBehindSize, dtype,
                 dx, dy, y, batch, heads, sq, skv, scale, mask)
KILN_SAME_FIELDS(kiln_layernorm_forward_args, ops::LayerNormForward, kBehindSize, dtype,
                 weight_dtype, y, x, weight, bias, mean, rstd, rows, cols, eps,
                 has_bias, zero_centered_weight, adds_residual, residual, sum)
KILN_SAME_FIELDS(kiln_layernorm_backward_args, ops::LayerNormBackward, kBehindSize,
                 dtype, weight_dtype, dx, dweight, dbias, dy, x, weight, mean, rstd,
                 rows, cols, has_bias, zero_centered_weight, has_dweight, adds_residual,
                 dsum, workspace, workspace_bytes)
KILN_SAME_FIELDS(kiln_rmsnorm_forward_args, ops::RmsNormForward, kBehindSize, dtype,
                 weight_dtype, y, x, weight, rstd, rows, cols, eps, casting,
                 zero_centered_weight, adds_residual, residual, sum)
KILN_SAME_FIELDS(kiln_rmsnorm_backward_args, ops::RmsNormBackward, kBehindSize, dtype,
                 weight_dtype, dx, dweight, dy, x, weight, rstd, rows, cols, casting,
                 zero_centered_weight, has_dweight, adds_residual, dsum, workspace,
                 workspace_bytes)
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
    std::memcpy(static_cast<void*>(&copy),
                reinterpret_cast<const std::byte*>(args) + kBehindSize, sizeof(Args));
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
          *bytes = KILN_TRY(kiln::ops::function##_workspace_bytes(copy, where)); \
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
