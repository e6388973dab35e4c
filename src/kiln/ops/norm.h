// LayerNorm and RMSNorm over the last dimension, and their gradients.
//
//   kiln::ops::rmsnorm_forward(service, device, stream,
//                              {.dtype = kiln::ops::DType::kBf16,
//                               .y = y, .x = x, .weight = weight, .rstd = rstd,
//                               .rows = 8192, .cols = 4096, .eps = 1e-6F,
//                               .casting = kiln::ops::RmsNormCasting::kLlama});
//
// Tensors are [rows, cols] of type `dtype`, contiguous device memory; rows and cols may
// be 0. weight, bias and their gradients are [cols] of type `weight_dtype`, mean and
// rstd are float [rows]. Each pointer must be aligned to an element. Fastest if tensors
// are aligned to 16 bytes and rows are multiples of 16 bytes. Out of place: outputs
// must overlap neither inputs nor each other. Arithmetic is in float; each element is
// rounded once, with kLlama twice.

#pragma once

#include <cstdint>

#include "kiln/device.h"
#include "kiln/export.h"
#include "kiln/ops/dtype.h"
#include "kiln/result.h"
#include "kiln/service.h"

namespace kiln::ops {

/// y = (x - mean) * rstd * weight + bias with mean = sum(x) / cols and rstd = 1 /
/// sqrt(sum((x - mean)^2) / cols + eps) of each row. A row with an infinity gives NaN.
struct LayerNormForward {
  DType dtype = DType::kUnset;  // of x, y, residual and sum
  /// Of weight and bias: the same as dtype, or kF32. Unset: the same as dtype.
  DType weight_dtype = DType::kUnset;
  KILN_TENSOR(dtype, rows, cols) void* y = nullptr;
  KILN_TENSOR(dtype, rows, cols) const void* x = nullptr;
  KILN_TENSOR_IF(has_weight, weight_dtype, cols) const void* weight = nullptr;
  KILN_TENSOR_IF(has_bias, weight_dtype, cols)
  const void* bias = nullptr;  // with has_bias
  /// Needed by the backward pass, mean unless it has from_output; null: not written.
  KILN_TENSOR(f32, rows) float* mean = nullptr;
  KILN_TENSOR(f32, rows) float* rstd = nullptr;
  std::int64_t rows = kUnsetSize;
  std::int64_t cols = kUnsetSize;
  KILN_OPTION float eps = 1e-5F;
  bool has_bias = true;
  KILN_OPTION bool zero_centered_weight = false;  // `weight` holds the weight minus 1
  /// Adds `residual` to x, rounds the sum to dtype, stores it in `sum`, and normalizes
  /// it instead of x.
  bool adds_residual = false;
  KILN_TENSOR_IF(adds_residual, dtype, rows, cols) const void* residual = nullptr;
  KILN_TENSOR(dtype, rows, cols) void* sum = nullptr;
  /// False: the weight is 1, and `weight` must be null. Needs has_bias = false;
  /// weight_dtype and zero_centered_weight change nothing then.
  bool has_weight = true;
};

/// The gradients of layernorm_forward() with respect to x, weight and bias:
///   dx = rstd * (g - mean(g) - xh * mean(g * xh)) with g = dy * weight and xh = (x -
///   mean) * rstd, dweight = sum of dy * xh over the rows, dbias = sum of dy.
struct LayerNormBackward {
  DType dtype = DType::kUnset;
  DType weight_dtype = DType::kUnset;
  KILN_TENSOR(dtype, rows, cols) void* dx = nullptr;
  KILN_TENSOR_IF(has_dweight, weight_dtype, cols)
  void* dweight = nullptr;  // of weight_dtype, like dbias
  KILN_TENSOR(weight_dtype, cols) void* dbias = nullptr;
  KILN_TENSOR(dtype, rows, cols) const void* dy = nullptr;
  KILN_TENSOR(dtype, rows, cols) const void* x = nullptr;  // with a residual: `sum`
  KILN_TENSOR_IF(has_weight, weight_dtype, cols) const void* weight = nullptr;
  KILN_TENSOR(f32, rows) const float* mean = nullptr;
  KILN_TENSOR(f32, rows) const float* rstd = nullptr;
  std::int64_t rows = kUnsetSize;
  std::int64_t cols = kUnsetSize;
  KILN_OPTION bool has_bias = true;
  KILN_OPTION bool zero_centered_weight = false;
  /// False: computes dx alone, neither dweight nor dbias, whatever has_bias says. Both
  /// must be null then, and no workspace is needed.
  bool has_dweight = true;
  /// As in the forward pass. True: adds `dsum`, the gradient of `sum` that comes from
  /// the rest of the model, to dx; dx is then the gradient of x and of residual.
  bool adds_residual = false;
  KILN_TENSOR_IF(adds_residual, dtype, rows, cols) const void* dsum = nullptr;
  /// Device scratch memory of at least layernorm_backward_workspace_bytes(), 4-byte
  /// aligned; may be null if that is 0.
  void* workspace = nullptr;
  std::uint64_t workspace_bytes = 0;
  /// As in the forward pass. False: computes dx alone, as without has_dweight.
  bool has_weight = true;
  /// True: takes xh not from x, mean and rstd, but from `y`, which the forward pass
  /// wrote, as (y - bias) / weight. So the program need not keep x and mean, which must
  /// be null. y is rounded to dtype: xh is off by up to half an ulp of y over the
  /// weight, but never taken for more than sqrt(cols), which no xh exceeds. Where the
  /// weight is 0, or below 2^-125, y says nothing of xh, which counts as 0: dweight is
  /// 0, and dx lacks xh * mean(g * xh).
  KILN_OPTION bool from_output = false;
  KILN_TENSOR(dtype, rows, cols) const void* y = nullptr;
  KILN_TENSOR(weight_dtype, cols)
  const void* bias = nullptr;  // with from_output and has_bias
};

/// How RMSNorm rounds, and what it multiplies by: as the models of that name do.
enum class RmsNormCasting : std::uint8_t {
  kNone,   // x * rstd * weight in float
  kLlama,  // x * rstd is rounded to dtype, then multiplied by weight
  kGemma,  // x * rstd * (1 + weight) in float
};

/// y = x * rstd * weight with rstd = 1 / sqrt(sum(x^2) / cols + eps) of each row. If
/// the sum overflows float, rstd is 0, so y is 0 where x is finite and NaN where it is
/// not.
struct RmsNormForward {
  DType dtype = DType::kUnset;
  DType weight_dtype = DType::kUnset;
  KILN_TENSOR(dtype, rows, cols) void* y = nullptr;
  KILN_TENSOR(dtype, rows, cols) const void* x = nullptr;
  KILN_TENSOR_IF(has_weight, weight_dtype, cols) const void* weight = nullptr;
  KILN_TENSOR(f32, rows) float* rstd = nullptr;  // null: not written
  std::int64_t rows = kUnsetSize;
  std::int64_t cols = kUnsetSize;
  KILN_OPTION float eps = 1e-6F;
  KILN_OPTION RmsNormCasting casting = RmsNormCasting::kNone;
  /// As in LayerNormForward. kGemma implies it; the 1 is added once, even if both are
  /// set.
  KILN_OPTION bool zero_centered_weight = false;
  bool adds_residual = false;  // as in LayerNormForward
  KILN_TENSOR_IF(adds_residual, dtype, rows, cols) const void* residual = nullptr;
  KILN_TENSOR(dtype, rows, cols) void* sum = nullptr;
  /// As in LayerNormForward; casting changes nothing either then.
  bool has_weight = true;
};

/// The gradients of rmsnorm_forward() with respect to x and weight, without kLlama's
/// intermediate rounding: dx = rstd * (g - xh * mean(g * xh)) with g = dy * weight and
/// xh = x * rstd; dweight = sum of dy * xh over the rows.
struct RmsNormBackward {
  DType dtype = DType::kUnset;
  DType weight_dtype = DType::kUnset;
  KILN_TENSOR(dtype, rows, cols) void* dx = nullptr;
  KILN_TENSOR_IF(has_dweight, weight_dtype, cols)
  void* dweight = nullptr;  // of weight_dtype
  KILN_TENSOR(dtype, rows, cols) const void* dy = nullptr;
  KILN_TENSOR(dtype, rows, cols) const void* x = nullptr;  // with a residual: `sum`
  KILN_TENSOR_IF(has_weight, weight_dtype, cols) const void* weight = nullptr;
  KILN_TENSOR(f32, rows) const float* rstd = nullptr;
  std::int64_t rows = kUnsetSize;
  std::int64_t cols = kUnsetSize;
  KILN_OPTION RmsNormCasting casting = RmsNormCasting::kNone;  // as in the forward pass
  KILN_OPTION bool zero_centered_weight = false;               // likewise
  bool has_dweight = true;     // as in LayerNormBackward
  bool adds_residual = false;  // as in LayerNormBackward
  KILN_TENSOR_IF(adds_residual, dtype, rows, cols) const void* dsum = nullptr;
  /// Device scratch memory of at least rmsnorm_backward_workspace_bytes(), 4-byte
  /// aligned; may be null if that is 0.
  void* workspace = nullptr;
  std::uint64_t workspace_bytes = 0;
  bool has_weight = true;                // as in LayerNormBackward
  KILN_OPTION bool from_output = false;  // likewise; xh is y / weight
  KILN_TENSOR(dtype, rows, cols) const void* y = nullptr;
};

/// Launches the operation on `device`, one of Service::devices(), in `stream`;
/// asynchronous. A null stream is the default stream of `device`, whatever context is
/// current; the thread's current context does not change. dweight and dbias are
/// bitwise reproducible for one shape on devices with equally many multiprocessors;
/// with 0 rows they are 0. The first call for a kernel fetches it as Service::get()
/// does, and blocks. After prepare() with the same dtypes, flags, casting and cols, the
/// call works during a stream capture. An unused pointer must be null, such as
/// `residual` without adds_residual. Errors: kInvalidArgument, before anything is
/// fetched (the argument that it names; a stream of another device); those of
/// Service::get() and Kernel::launch(). Thread safety: any number of threads.
[[nodiscard]] KILN_EXPORT Result<void> layernorm_forward(Service& service,
                                                         const Device& device,
                                                         CUstream_st* stream,
                                                         const LayerNormForward& args);
[[nodiscard]] KILN_EXPORT Result<void> layernorm_backward(
    Service& service, const Device& device, CUstream_st* stream,
    const LayerNormBackward& args);
[[nodiscard]] KILN_EXPORT Result<void> rmsnorm_forward(Service& service,
                                                       const Device& device,
                                                       CUstream_st* stream,
                                                       const RmsNormForward& args);
[[nodiscard]] KILN_EXPORT Result<void> rmsnorm_backward(Service& service,
                                                        const Device& device,
                                                        CUstream_st* stream,
                                                        const RmsNormBackward& args);

/// Bytes of scratch memory that the operation needs on `device`; 0 without dweight or
/// weight. Ignores pointers. Errors: kInvalidArgument. Thread-safe.
[[nodiscard]] KILN_EXPORT Result<std::uint64_t> layernorm_backward_workspace_bytes(
    const Device& device, const LayerNormBackward& args);
[[nodiscard]] KILN_EXPORT Result<std::uint64_t> rmsnorm_backward_workspace_bytes(
    const Device& device, const RmsNormBackward& args);

/// Fetches and loads on `device` the kernels that the operation would launch there.
/// Ignores pointers. Errors and thread safety as above.
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const LayerNormForward& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const LayerNormBackward& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const RmsNormForward& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const RmsNormBackward& args);

}  // namespace kiln::ops
