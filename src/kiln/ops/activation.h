// Activations of a feed-forward layer, and their gradients: plain ones of one input,
// and gated linear units (GLU), which multiply the activation of a gate by a linear
// input.
//
//   kiln::ops::activation_forward(service, device, stream,
//                                 {.dtype = kiln::ops::DType::kBf16,
//                                  .kind = kiln::ops::ActivationKind::kGeluTanh,
//                                  .y = y, .x = x, .has_bias = true, .bias = bias,
//                                  .rows = tokens, .cols = 32768});
//   kiln::ops::glu_forward(service, device, stream,
//                          {.dtype = kiln::ops::DType::kBf16,
//                           .kind = kiln::ops::GluKind::kSwiglu,
//                           .y = y, .x = gate_and_linear,
//                           .rows = tokens, .cols = 14336});
//
// Tensors are contiguous device memory of type `dtype`, except weight and dweight,
// which are float; rows and cols may be 0. Each pointer must be aligned to an element.
// Fastest if tensors are aligned to 16 bytes and rows are multiples of 16 bytes.
// Arithmetic is in float: x + bias is rounded to float, the result once to dtype. Out
// of place: an output must not overlap an input or another output. Deterministic: the
// order of a sum depends only on shape, alignment and device.

#pragma once

#include <cstdint>
#include <limits>

#include "kiln/device.h"
#include "kiln/export.h"
#include "kiln/ops/dtype.h"
#include "kiln/result.h"
#include "kiln/service.h"

namespace kiln::ops {

/// act(u). The two forms of GELU are different functions.
enum class ActivationKind : std::uint8_t {
  kUnset,
  kGeluTanh,     // 0.5 u (1 + tanh(sqrt(2/pi) (u + 0.044715 u^3)))
  kGeluErf,      // 0.5 u (1 + erf(u / sqrt(2)))
  kSquaredRelu,  // max(u, 0)^2
};

/// y = act(x + bias), or act(x) without has_bias.
struct ActivationForward {
  DType dtype = DType::kUnset;
  KILN_OPTION ActivationKind kind = ActivationKind::kUnset;
  KILN_TENSOR(dtype, rows, cols) void* y = nullptr;
  KILN_TENSOR(dtype, rows, cols) const void* x = nullptr;
  bool has_bias = false;
  KILN_TENSOR_IF(has_bias, dtype, cols) const void* bias = nullptr;
  std::int64_t rows = kUnsetSize;
  std::int64_t cols = kUnsetSize;
};

/// dx = dy * act'(x + bias); dbias = the sum of dx over the rows, before dx is rounded
/// to dtype.
struct ActivationBackward {
  DType dtype = DType::kUnset;
  KILN_OPTION ActivationKind kind = ActivationKind::kUnset;
  KILN_TENSOR(dtype, rows, cols) void* dx = nullptr;
  KILN_TENSOR(dtype, rows, cols) const void* dy = nullptr;
  KILN_TENSOR(dtype, rows, cols) const void* x = nullptr;
  bool has_bias = false;
  KILN_TENSOR_IF(has_bias, dtype, cols) const void* bias = nullptr;
  KILN_TENSOR(dtype, cols) void* dbias = nullptr;  // with has_bias
  std::int64_t rows = kUnsetSize;
  std::int64_t cols = kUnsetSize;
  /// With has_bias: device scratch memory of at least
  /// activation_backward_workspace_bytes(), 4-byte aligned; may be null if that is 0.
  void* workspace = nullptr;
  std::uint64_t workspace_bytes = 0;
};

/// glu(g, l), with g and l as in GluForward.
enum class GluKind : std::uint8_t {
  kUnset,
  kSwiglu,     // y = g sigmoid(g) l
  kGegluTanh,  // y = gelu(g) l, in the form of ActivationKind::kGeluTanh
  kGegluErf,   // y = gelu(g) l, in the form of ActivationKind::kGeluErf
  kReglu,      // y = max(g, 0) l
  /// y = g' sigmoid(alpha g') (l' + offset) with g' = min(g, limit) and l' = clamp(l,
  /// -limit, limit). The gradient of g is 0 if g > limit, that of l if |l| > limit; at
  /// the limit itself the gradient passes.
  kClampedSwiglu,
};

/// Where gate and linear input are. Alternating columns are not supported.
enum class GluLayout : std::uint8_t {
  kPacked,  // x is [rows, 2, cols]: in each row first the gate, then the linear input
  kSplit,   // x is the gate; x and `linear` are [rows, cols]
};

/// y = glu(g, l) * weight with g = gate + bias[0] and l = linear + bias[1]; without
/// has_bias or has_weight, the bias is 0 and the weight 1.
struct GluForward {
  DType dtype = DType::kUnset;
  KILN_OPTION GluKind kind = GluKind::kUnset;
  GluLayout layout = GluLayout::kPacked;
  KILN_TENSOR(dtype, rows, cols) void* y = nullptr;
  KILN_TENSOR(dtype) const void* x = nullptr;
  KILN_TENSOR(dtype, rows, cols) const void* linear = nullptr;  // for kSplit
  bool has_bias = false;
  KILN_TENSOR_IF(has_bias, dtype, 2, cols)
  const void* bias = nullptr;  // in either layout
  bool has_weight = false;     // not together with has_bias
  KILN_TENSOR_IF(has_weight, f32, rows)
  const float* weight = nullptr;  // one factor per token
  std::int64_t rows = kUnsetSize;
  std::int64_t cols = kUnsetSize;  // of y
  // For kClampedSwiglu, which needs all three; other kinds ignore them. Published
  // forms: alpha 1.702, limit 7, offset 1; and alpha 1, offset 0 with a limit of the
  // model.
  KILN_OPTION float alpha = std::numeric_limits<float>::quiet_NaN();
  KILN_OPTION float limit = 0;  // above 0; infinity: no limit
  KILN_OPTION float offset = std::numeric_limits<float>::quiet_NaN();
};

/// The gradients of glu_forward() with respect to its inputs, in the same layout.
/// dbias = the sum of the gradients of gate and linear input over the rows, before they
/// are rounded to dtype; dweight = the sum of dy * glu(g, l) along each row.
struct GluBackward {
  DType dtype = DType::kUnset;
  KILN_OPTION GluKind kind = GluKind::kUnset;
  GluLayout layout = GluLayout::kPacked;
  KILN_TENSOR(dtype) void* dx = nullptr;
  KILN_TENSOR(dtype, rows, cols) void* dlinear = nullptr;  // for kSplit
  KILN_TENSOR(dtype, rows, cols) const void* dy = nullptr;
  KILN_TENSOR(dtype) const void* x = nullptr;
  KILN_TENSOR(dtype, rows, cols) const void* linear = nullptr;  // for kSplit
  bool has_bias = false;
  KILN_TENSOR_IF(has_bias, dtype, 2, cols) const void* bias = nullptr;
  KILN_TENSOR(dtype, 2, cols) void* dbias = nullptr;  // with has_bias
  bool has_weight = false;
  KILN_TENSOR_IF(has_weight, f32, rows) const float* weight = nullptr;
  KILN_TENSOR(f32, rows) float* dweight = nullptr;  // with has_weight
  std::int64_t rows = kUnsetSize;
  std::int64_t cols = kUnsetSize;
  KILN_OPTION float alpha = std::numeric_limits<float>::quiet_NaN();
  KILN_OPTION float limit = 0;
  KILN_OPTION float offset = std::numeric_limits<float>::quiet_NaN();
  /// With has_bias: device scratch memory of at least glu_backward_workspace_bytes(),
  /// 4-byte aligned; may be null if that is 0.
  void* workspace = nullptr;
  std::uint64_t workspace_bytes = 0;
};

/// Launches the operation on `device`, one of Service::devices(), in `stream`;
/// asynchronous. A null stream is the default stream of `device`, whatever context is
/// current; the thread's current context does not change. The first call for a kernel
/// fetches it as Service::get() does, and blocks. After prepare() with the same dtype,
/// kind, has_bias and has_weight, the call works during a stream capture. An unused
/// pointer must be null, such as `bias` without has_bias. Errors: kInvalidArgument,
/// before anything is fetched (the argument that it names; a stream of another device);
/// those of Service::get() and Kernel::launch(). Thread safety: any number of threads.
[[nodiscard]] KILN_EXPORT Result<void> activation_forward(
    Service& service, const Device& device, CUstream_st* stream,
    const ActivationForward& args);
[[nodiscard]] KILN_EXPORT Result<void> activation_backward(
    Service& service, const Device& device, CUstream_st* stream,
    const ActivationBackward& args);
[[nodiscard]] KILN_EXPORT Result<void> glu_forward(Service& service,
                                                   const Device& device,
                                                   CUstream_st* stream,
                                                   const GluForward& args);
[[nodiscard]] KILN_EXPORT Result<void> glu_backward(Service& service,
                                                    const Device& device,
                                                    CUstream_st* stream,
                                                    const GluBackward& args);

/// Bytes of workspace that the operation needs on `device`; 0 without has_bias. Ignores
/// pointers. Errors: kInvalidArgument. Thread-safe.
[[nodiscard]] KILN_EXPORT Result<std::uint64_t> activation_backward_workspace_bytes(
    const Device& device, const ActivationBackward& args);
[[nodiscard]] KILN_EXPORT Result<std::uint64_t> glu_backward_workspace_bytes(
    const Device& device, const GluBackward& args);

/// Fetches and loads on `device` the kernels that the operation would launch there.
/// Ignores pointers. Errors and thread safety as above.
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const ActivationForward& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const ActivationBackward& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const GluForward& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const GluBackward& args);

}  // namespace kiln::ops
