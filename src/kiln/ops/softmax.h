// Softmax over the last dimension of attention scores, and its gradient.
//
//   kiln::ops::softmax_forward(service, device, stream,
//                              {.dtype = kiln::ops::DType::kBf16, .y = y, .x = x,
//                               .batch = 4, .heads = 32, .sq = 2048, .skv = 2048,
//                               .scale = 0.088F,
//                               .mask = kiln::ops::SoftmaxMask::kCausal});
//
// Tensors are [batch, heads, sq, skv] of type `dtype`, contiguous device memory; each
// size may be 0. Each pointer must be aligned to an element. Fastest if tensors are
// aligned to 16 bytes and rows are multiples of 16 bytes. Out of place: an output must
// not overlap an input. Arithmetic is in float, rounded once at the store.

#pragma once

#include <cstdint>

#include "kiln/device.h"
#include "kiln/export.h"
#include "kiln/ops/dtype.h"
#include "kiln/result.h"
#include "kiln/service.h"

namespace kiln::ops {

/// Which elements of a row are masked.
enum class SoftmaxMask : std::uint8_t {
  kNone,
  kBytes,   // elements whose mask byte is not 0
  kCausal,  // key j of query i where j > i + skv - sq (bottom-right aligned)
};

/// With kBytes: y of a row that is masked wholly. Kernels that set masked scores to
/// -10000 give 1 / skv (GPT-NeoX), or look for such rows and give 0 (Apex).
enum class SoftmaxMaskedRow : std::uint8_t {
  kZero,
  kUniform,  // each element is 1 / skv; an element of -infinity counts as masked
};

/// y = softmax(scale * x) of each row. A masked element counts as -infinity, so its y
/// is exactly 0. A wholly masked row is all 0, and so is its gradient, unless
/// `masked_row` says else.
struct SoftmaxForward {
  DType dtype = DType::kUnset;
  KILN_TENSOR(dtype, batch, heads, sq, skv) void* y = nullptr;
  KILN_TENSOR(dtype, batch, heads, sq, skv) const void* x = nullptr;
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t sq = kUnsetSize;   // rows of one head
  std::int64_t skv = kUnsetSize;  // elements of a row
  KILN_OPTION float scale = 1;    // finite
  KILN_OPTION SoftmaxMask mask = SoftmaxMask::kNone;
  /// For kBytes: [mask_batch, 1, sq, skv], one byte per element, shared by all heads.
  KILN_TENSOR(u8, mask_batch, sq, skv) const std::uint8_t* mask_bytes = nullptr;
  /// For kBytes. 1: one mask for the whole batch; 0 or `batch`: one mask for each
  /// element of the batch.
  std::int64_t mask_batch = 0;
  KILN_OPTION SoftmaxMaskedRow masked_row =
      SoftmaxMaskedRow::kZero;  // kUniform: with kBytes alone
};

/// dx = scale * y * (dy - sum(y * dy)) of each row, from the y of softmax_forward().
struct SoftmaxBackward {
  DType dtype = DType::kUnset;
  KILN_TENSOR(dtype, batch, heads, sq, skv) void* dx = nullptr;
  KILN_TENSOR(dtype, batch, heads, sq, skv) const void* dy = nullptr;
  KILN_TENSOR(dtype, batch, heads, sq, skv) const void* y = nullptr;
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t sq = kUnsetSize;
  std::int64_t skv = kUnsetSize;
  KILN_OPTION float scale = 1;  // finite
  /// As in the forward pass. Mask bytes are not needed: where y is 0, dx is 0.
  KILN_OPTION SoftmaxMask mask = SoftmaxMask::kNone;
};

/// Launches the operation on `device`, one of Service::devices(), in `stream`;
/// asynchronous. A null stream is the default stream of `device`, whatever context is
/// current; the thread's current context does not change. The first call for a kernel
/// fetches it as Service::get() does, and blocks. After prepare() with the same dtype,
/// mask and skv, the call works during a stream capture. An unused pointer must be
/// null, such as `mask_bytes` without kBytes. Errors: kInvalidArgument, before anything
/// is fetched (the argument that it names; a stream of another device); those of
/// Service::get() and Kernel::launch(). Thread safety: any number of threads.
[[nodiscard]] KILN_EXPORT Result<void> softmax_forward(Service& service,
                                                       const Device& device,
                                                       CUstream_st* stream,
                                                       const SoftmaxForward& args);
[[nodiscard]] KILN_EXPORT Result<void> softmax_backward(Service& service,
                                                        const Device& device,
                                                        CUstream_st* stream,
                                                        const SoftmaxBackward& args);

/// Fetches and loads on `device` the kernels that the operation would launch there.
/// Ignores pointers. Errors and thread safety as above.
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const SoftmaxForward& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const SoftmaxBackward& args);

}  // namespace kiln::ops
