// Cross-entropy loss of a language model's logits against target tokens, and its
// gradient: both in one pass over the logits, or in a forward and a backward pass.
//
//   kiln::ops::cross_entropy(service, device, stream,
//                            {.dtype = kiln::ops::DType::kBf16,
//                             .loss = loss, .dlogits = dlogits,
//                             .logits = logits, .targets = targets,
//                             .rows = 8192, .vocabulary = 128256,
//                             .scale = 1.0F / counted_tokens});
//
// For a row x of logits with target t, V = vocabulary and e = smoothing:
//
//   lse  = log(sum(exp(x)))
//   loss = lse - (1 - e) * x[t] - e * mean(x)
//   dx   = scale * row_scale * (softmax(x) - (1 - e) * [column is t] - e / V)
//
// Logits and gradient have type `dtype`; the targets have `target_type`; all else is
// float, the arithmetic too. All tensors are device memory; each pointer must be
// aligned to an element. `rows` may be 0.
// - A row whose target is `ignored_index` is not read: loss, lse and gradient are 0.
// - A target outside the vocabulary cannot return an error, because targets are device
//   memory: its row is not read, and loss, lse and gradient are NaN.
// - A row with NaN or +inf, or with -inf only, has NaN as loss and gradient.
// - Columns in [vocabulary, padded_vocabulary) are padding: not read, not in the mean,
//   gradient 0.
//
// Rows are logits_stride and dlogits_stride elements apart. Fastest if a row of logits
// and the same row of dlogits have the same offset from a 16-byte boundary. That is so,
// whatever the vocabulary, if both tensors are aligned to 16 bytes and their strides
// are equal. Out of place: an output, with the gaps between its rows, must not overlap
// an input or another output.

#pragma once

#include <cstdint>

#include "kiln/device.h"
#include "kiln/export.h"
#include "kiln/ops/dtype.h"
#include "kiln/result.h"
#include "kiln/service.h"

namespace kiln::ops {

/// The type of the targets.
enum class TargetType : std::uint8_t { kInt64, kInt32 };

/// Loss and gradient in one pass.
struct CrossEntropy {
  DType dtype = DType::kUnset;
  KILN_TENSOR(f32, rows) float* loss = nullptr;  // not scaled
  KILN_TENSOR(f32, rows) float* lse = nullptr;   // null: not written
  void* dlogits = nullptr;                       // [rows, padded_vocabulary]
  const void* logits = nullptr;                  // [rows, vocabulary]
  const void* targets = nullptr;                 // [rows]
  TargetType target_type = TargetType::kInt64;
  KILN_OPTION std::int64_t ignored_index = -100;
  std::int64_t rows = kUnsetSize;
  std::int64_t vocabulary = kUnsetSize;  // at least 1
  std::int64_t padded_vocabulary = 0;    // 0: vocabulary
  std::int64_t logits_stride = 0;        // in elements; 0: padded_vocabulary
  std::int64_t dlogits_stride = 0;       // likewise
  KILN_OPTION float smoothing = 0;       // 0 to 1
  // Of the gradient, such as 1 / number of tokens not ignored.
  KILN_OPTION float scale = 1;
  /// [rows], or null: a further factor for each row, such as the gradient of its loss.
  KILN_TENSOR(f32, rows) const float* row_scale = nullptr;
};

/// The loss, and `saved` for the backward pass.
struct CrossEntropyForward {
  DType dtype = DType::kUnset;
  KILN_TENSOR(f32, rows) float* loss = nullptr;
  KILN_TENSOR(f32, rows) float* lse = nullptr;
  /// [rows, 2]: the largest logit of each row, and the sum of exp(logit - largest).
  /// Null: not written, and no backward pass can follow. The backward pass does not
  /// take lse instead, which is too inaccurate: with logits around 10000, the last bit
  /// of lse changes every gradient by a thousandth.
  KILN_TENSOR(f32, rows, 2) float* saved = nullptr;
  const void* logits = nullptr;  // this and the following as in CrossEntropy
  const void* targets = nullptr;
  TargetType target_type = TargetType::kInt64;
  KILN_OPTION std::int64_t ignored_index = -100;
  std::int64_t rows = kUnsetSize;
  std::int64_t vocabulary = kUnsetSize;
  std::int64_t padded_vocabulary = 0;  // used for the default of logits_stride only
  std::int64_t logits_stride = 0;
  KILN_OPTION float smoothing = 0;
};

/// The gradient, from `saved`, with the same bits as that of cross_entropy(). Fields as
/// in CrossEntropy; logits, targets, ignored_index, sizes and smoothing must be those
/// of the forward pass.
struct CrossEntropyBackward {
  DType dtype = DType::kUnset;
  void* dlogits = nullptr;
  const void* logits = nullptr;
  KILN_TENSOR(f32, rows, 2) const float* saved = nullptr;
  const void* targets = nullptr;
  TargetType target_type = TargetType::kInt64;
  KILN_OPTION std::int64_t ignored_index = -100;
  std::int64_t rows = kUnsetSize;
  std::int64_t vocabulary = kUnsetSize;
  std::int64_t padded_vocabulary = 0;
  std::int64_t logits_stride = 0;
  std::int64_t dlogits_stride = 0;
  KILN_OPTION float smoothing = 0;
  KILN_OPTION float scale = 1;
  KILN_TENSOR(f32, rows) const float* row_scale = nullptr;
};

/// Launches the operation on `device`, one of Service::devices(), in `stream`;
/// asynchronous. A null stream is the default stream of `device`, whatever context is
/// current; the thread's current context does not change. The first call for a kernel
/// fetches it as Service::get() does, and blocks. After prepare() with the same dtype,
/// the call works during a stream capture. Errors: kInvalidArgument, before anything is
/// fetched (the argument that it names; a stream of another device); those of
/// Service::get() and Kernel::launch(). Thread safety: any number of threads.
[[nodiscard]] KILN_EXPORT Result<void> cross_entropy(Service& service,
                                                     const Device& device,
                                                     CUstream_st* stream,
                                                     const CrossEntropy& args);
[[nodiscard]] KILN_EXPORT Result<void> cross_entropy_forward(
    Service& service, const Device& device, CUstream_st* stream,
    const CrossEntropyForward& args);
[[nodiscard]] KILN_EXPORT Result<void> cross_entropy_backward(
    Service& service, const Device& device, CUstream_st* stream,
    const CrossEntropyBackward& args);

/// Fetches and loads on `device` the kernels that the operation would launch there.
/// Ignores pointers. Errors and thread safety as above.
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const CrossEntropy& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const CrossEntropyForward& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const CrossEntropyBackward& args);

}  // namespace kiln::ops
