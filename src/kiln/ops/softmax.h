// Softmax over the last dimension of attention scores, and its gradient.
//
//   kiln::ops::softmax_forward(service, device, stream,
//                              {.dtype = kiln::ops::DType::kBf16, .y = y, .x = x,
//                               .batch = 4, .heads = 32, .sq = 2048, .skv = 2048,
//                               .scale = 0.088F,
//                               .mask = kiln::ops::SoftmaxMask::kCausal});
//
// All tensors are [batch, heads, sq, skv], contiguous, of any size, 0 too; 16-byte
// aligned ones whose skv is a multiple of 16 bytes are the fast ones. The operation is
// out of place: what is written overlaps nothing that is read.

#pragma once

#include <cstdint>

#include "kiln/device.h"
#include "kiln/export.h"
#include "kiln/ops/dtype.h"
#include "kiln/result.h"
#include "kiln/service.h"

namespace kiln::ops {

/// What takes no part in a row.
enum class SoftmaxMask : std::uint8_t {
  kNone,
  kBytes,   // an element whose mask byte is not 0
  kCausal,  // key j of query i where j > i + skv - sq: the triangle ends bottom right
};

/// y = softmax(scale * x) of each row; exactly 0 for what takes no part, and for a
/// whole row of nothing else.
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
  std::int64_t mask_batch = 0;  // `batch`, or 1: one mask for all; 0 means `batch`
};

/// dx = scale * y * (dy - sum(y * dy)) of each row, out of the y of softmax_forward().
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
  /// That of the forward pass. Its bytes are not needed: y is 0 there.
  SoftmaxMask mask = SoftmaxMask::kNone;
};

/// Starts the operation on `device`, one of Service::devices(), in `stream`, and
/// returns. A null stream is the default stream of that device, whatever context is
/// current to the thread, and the caller's context is current again afterwards. The
/// first call for a kernel fetches it as Service::get() does; after prepare() of
/// arguments with the same dtype, mask and skv it works under capture. A pointer that
/// the other arguments do not use has to be null. Errors: kInvalidArgument, before
/// anything is fetched, which names the argument, or for a stream of another device;
/// those of Service::get() and Kernel::launch(). Thread safety: any number of threads.
[[nodiscard]] KILN_EXPORT Result<void> softmax_forward(Service& service,
                                                       const Device& device,
                                                       CUstream_st* stream,
                                                       const SoftmaxForward& args);
[[nodiscard]] KILN_EXPORT Result<void> softmax_backward(Service& service,
                                                        const Device& device,
                                                        CUstream_st* stream,
                                                        const SoftmaxBackward& args);

/// Fetches and loads on `device` what the operation would launch there; pointers are
/// not looked at. Errors and thread safety as above.
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const SoftmaxForward& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const SoftmaxBackward& args);

}  // namespace kiln::ops
