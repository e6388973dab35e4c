// Softmax over the last dimension of attention scores, and its gradient.
//
//   kiln::ops::softmax_forward(service, device, stream,
//                              {.dtype = kiln::ops::DType::kBf16, .y = y, .x = x,
//                               .batch = 4, .heads = 32, .sq = 2048, .skv = 2048,
//                               .scale = 0.088F,
//                               .mask = kiln::ops::SoftmaxMask::kCausal});
//
// Tensors are [batch, heads, sq, skv] and contiguous; each size may be 0. Fastest if
// tensors are aligned to 16 bytes and rows are multiples of 16 bytes. Out of place: an
// output must not overlap an input.

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

/// y = softmax(scale * x) of each row. A masked element is exactly 0, even if the whole
/// row is masked.
struct SoftmaxForward {
  DType dtype = DType::kUnset;
  void* y = nullptr;
  const void* x = nullptr;
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t sq = kUnsetSize;   // rows of one head
  std::int64_t skv = kUnsetSize;  // length of a row
  float scale = 1;
  SoftmaxMask mask = SoftmaxMask::kNone;
  /// For kBytes: [mask_batch, 1, sq, skv], a byte each.
  const std::uint8_t* mask_bytes = nullptr;
  std::int64_t mask_batch = 0;  // 1: one mask for all; 0 or batch: one each
};

/// dx = scale * y * (dy - sum(y * dy)) of each row, from the y of softmax_forward().
struct SoftmaxBackward {
  DType dtype = DType::kUnset;
  void* dx = nullptr;
  const void* dy = nullptr;
  const void* y = nullptr;
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t sq = kUnsetSize;
  std::int64_t skv = kUnsetSize;
  float scale = 1;
  /// As in the forward pass. Mask bytes are not needed: a masked y is 0.
  SoftmaxMask mask = SoftmaxMask::kNone;
};

/// Launches the operation on `device`, one of Service::devices(), in `stream`;
/// asynchronous. A null stream is the default stream of `device`, whatever context is
/// current; the thread's current context does not change. The first call for a kernel
/// fetches it as Service::get() does, and blocks; after prepare() with the same dtype,
/// mask and skv, the call works under capture. An unused pointer must be null, such as
/// `mask_bytes` without kBytes. Errors: kInvalidArgument, before anything is fetched
/// (names the wrong argument; a stream of another device); those of Service::get() and
/// Kernel::launch(). Thread safety: any number of threads.
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
