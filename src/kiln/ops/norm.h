// LayerNorm and RMSNorm over the last dimension, and their gradients.
//
//   kiln::ops::rmsnorm_forward(service, device, stream,
//                              {.dtype = kiln::ops::DType::kBf16,
//                               .y = y, .x = x, .weight = weight, .rstd = rstd,
//                               .rows = 8192, .cols = 4096, .eps = 1e-6F,
//                               .casting = kiln::ops::RmsNormCasting::kLlama});
//
// Rows of all tensors are [rows, cols], contiguous, of any size, 0 too; weight and bias
// are [cols], mean and rstd float [rows]. 16-byte aligned ones whose cols is a multiple
// of 16 bytes are the fast ones. The operations are out of place: what is written
// overlaps nothing that is read. Arithmetic is in float, each element is rounded once.

#pragma once

#include <cstdint>

#include "kiln/device.h"
#include "kiln/export.h"
#include "kiln/ops/dtype.h"
#include "kiln/result.h"
#include "kiln/service.h"

namespace kiln::ops {

/// y = (x - mean) * rstd * weight + bias with mean = sum(x) / cols and rstd = 1 /
/// sqrt(sum((x - mean)^2) / cols + eps) of each row.
struct LayerNormForward {
  DType dtype = DType::kUnset;  // of the rows
  DType weight_dtype =
      DType::kUnset;  // of weight and bias: dtype, kF32, or unset: dtype
  void* y = nullptr;
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;  // with has_bias
  /// What the backward pass needs; null: not written.
  float* mean = nullptr;
  float* rstd = nullptr;
  std::int64_t rows = kUnsetSize;
  std::int64_t cols = kUnsetSize;
  float eps = 1e-5F;
  bool has_bias = true;
  bool zero_centered_weight = false;  // it is the weight minus 1
  /// `sum` = x + residual, rounded and stored, has the place of x.
  bool adds_residual = false;
  const void* residual = nullptr;
  void* sum = nullptr;
};

/// The gradients of layernorm_forward() by x, weight and bias:
///   dx = rstd * (g - mean(g) - xh * mean(g * xh)) with g = dy * weight and xh = (x -
///   mean) * rstd, dweight = sum of dy * xh over the rows, dbias = sum of dy.
struct LayerNormBackward {
  DType dtype = DType::kUnset;
  DType weight_dtype = DType::kUnset;
  void* dx = nullptr;
  void* dweight = nullptr;  // of weight_dtype, as dbias
  void* dbias = nullptr;
  const void* dy = nullptr;
  const void* x = nullptr;  // where there was a residual, the sum
  const void* weight = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  std::int64_t rows = kUnsetSize;
  std::int64_t cols = kUnsetSize;
  bool has_bias = true;
  bool zero_centered_weight = false;
  /// Without, there is dx alone, and no need of dweight, dbias and workspace.
  bool has_dweight = true;
  /// The gradient that others give to the sum is added to dx, which is then that of
  /// both its terms.
  bool adds_residual = false;
  const void* dsum = nullptr;
  /// layernorm_backward_workspace_bytes() of scratch memory, a multiple of 4.
  void* workspace = nullptr;
  std::uint64_t workspace_bytes = 0;
};

/// Where RMSNorm rounds, and what the weight is.
enum class RmsNormCasting : std::uint8_t {
  kNone,   // x * rstd * weight in float
  kLlama,  // x * rstd is rounded to dtype before the product with the weight
  kGemma,  // x * rstd * (1 + weight) in float
};

/// y = x * rstd * weight with rstd = 1 / sqrt(sum(x^2) / cols + eps) of each row.
struct RmsNormForward {
  DType dtype = DType::kUnset;
  DType weight_dtype = DType::kUnset;
  void* y = nullptr;
  const void* x = nullptr;
  const void* weight = nullptr;
  float* rstd = nullptr;  // null: not written
  std::int64_t rows = kUnsetSize;
  std::int64_t cols = kUnsetSize;
  float eps = 1e-6F;
  RmsNormCasting casting = RmsNormCasting::kNone;
  bool zero_centered_weight = false;  // it is the weight minus 1; with kGemma always
  bool adds_residual = false;         // as in LayerNormForward
  const void* residual = nullptr;
  void* sum = nullptr;
};

/// The gradients of rmsnorm_forward() by x and weight, for which a rounding in between
/// counts as none: dx = rstd * (g - xh * mean(g * xh)) with g = dy * weight and xh = x
/// * rstd, dweight = sum of dy * xh over the rows.
struct RmsNormBackward {
  DType dtype = DType::kUnset;
  DType weight_dtype = DType::kUnset;
  void* dx = nullptr;
  void* dweight = nullptr;  // of weight_dtype
  const void* dy = nullptr;
  const void* x = nullptr;  // where there was a residual, the sum
  const void* weight = nullptr;
  const float* rstd = nullptr;
  std::int64_t rows = kUnsetSize;
  std::int64_t cols = kUnsetSize;
  RmsNormCasting casting = RmsNormCasting::kNone;  // that of the forward pass
  bool zero_centered_weight = false;               // as there
  bool has_dweight = true;                         // as in LayerNormBackward
  bool adds_residual = false;                      // as in LayerNormBackward
  const void* dsum = nullptr;
  /// rmsnorm_backward_workspace_bytes() of scratch memory, a multiple of 4.
  void* workspace = nullptr;
  std::uint64_t workspace_bytes = 0;
};

/// Starts the operation on `device`, one of Service::devices(), in `stream`, and
/// returns. A null stream is the default stream of that device, whatever context is
/// current to the thread, and the caller's context is current again afterwards. dweight
/// and dbias are the same bits every time for the same shape on devices with the same
/// number of multiprocessors; without rows they are zeros. The first call for a kernel
/// fetches it as Service::get() does; after prepare() of arguments with the same
/// dtypes, flags and cols it works under capture. A pointer that the other arguments do
/// not use has to be null. Errors: kInvalidArgument, before anything is fetched, which
/// names the argument, or for a stream of another device; those of Service::get() and
/// Kernel::launch(). Thread safety: any number of threads.
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

/// How much scratch memory the operation needs on `device`; pointers are not looked at.
/// Errors: kInvalidArgument. Thread-safe.
[[nodiscard]] KILN_EXPORT Result<std::uint64_t> layernorm_backward_workspace_bytes(
    const LayerNormBackward& args, const Device& device);
[[nodiscard]] KILN_EXPORT Result<std::uint64_t> rmsnorm_backward_workspace_bytes(
    const RmsNormBackward& args, const Device& device);

/// Fetches and loads on `device` what the operation would launch there; pointers are
/// not looked at. Errors and thread safety as above.
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const LayerNormForward& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const LayerNormBackward& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const RmsNormForward& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const RmsNormBackward& args);

}  // namespace kiln::ops
