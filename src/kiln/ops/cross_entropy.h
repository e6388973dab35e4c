// Cross-entropy of a language model's logits against the tokens that came, and its
// gradient: both in one pass over the logits, or one after the other.
//
//   kiln::ops::cross_entropy(service, device, stream,
//                            {.dtype = kiln::ops::DType::kBf16,
//                             .loss = loss, .dlogits = dlogits,
//                             .logits = logits, .targets = targets,
//                             .rows = 8192, .vocabulary = 128256,
//                             .scale = 1.0F / counted_tokens});
//
// For a row x of logits with target t, V columns and the smoothing e:
//
//   lse  = log(sum(exp(x)))
//   loss = lse - (1 - e) * x[t] - e * mean(x)
//   dx   = scale * row_scale * (softmax(x) - (1 - e) * [column is t] - e / V)
//
// Logits and gradient are `dtype`, all else is float, arithmetic too. What is special:
// - A row whose target is `ignored_index` is not read: loss, lse and gradient are 0.
// - A target that is no column is a mistake: loss, lse and gradient of its row are NaN,
//   and nothing is read. So are loss and gradient where the row has NaN, +inf, or -inf
//   alone.
// - A vocabulary that is padded to `padded_vocabulary` columns: what is beyond V is not
//   read, takes no part in the mean, and has gradient 0.
//
// Rows are `stride` elements apart. Those of logits and dlogits that are equally far
// from a 16-byte boundary are the fast ones; tensors that are 16-byte aligned, with
// equal strides, are so, whatever the vocabulary. The operations are out of place: what
// is written overlaps nothing that is read, from a tensor's first row to its last, what
// lies between rows included.

#pragma once

#include <cstdint>

#include "kiln/device.h"
#include "kiln/export.h"
#include "kiln/ops/dtype.h"
#include "kiln/result.h"
#include "kiln/service.h"

namespace kiln::ops {

/// Of a target.
enum class TargetType : std::uint8_t { kInt64, kInt32 };

/// Loss and gradient in one pass.
struct CrossEntropy {
  DType dtype = DType::kUnset;
  float* loss = nullptr;    // [rows], not scaled
  float* lse = nullptr;     // [rows], or null where nobody wants it
  void* dlogits = nullptr;  // [rows, padded_vocabulary]
  const void* logits = nullptr;
  const void* targets = nullptr;  // [rows]
  TargetType target_type = TargetType::kInt64;
  std::int64_t ignored_index = -100;
  std::int64_t rows = kUnsetSize;
  std::int64_t vocabulary = kUnsetSize;  // at least 1
  std::int64_t padded_vocabulary = 0;    // 0: vocabulary
  std::int64_t logits_stride = 0;        // in elements; 0: padded_vocabulary
  std::int64_t dlogits_stride = 0;
  float smoothing = 0;  // 0 to 1
  float scale = 1;      // of the gradient: 1 / counted tokens, say
  /// [rows], or null: a factor more for each row, as the gradient of its loss.
  const float* row_scale = nullptr;
};

/// The loss alone, and what the backward pass needs of it.
struct CrossEntropyForward {
  DType dtype = DType::kUnset;
  float* loss = nullptr;
  float* lse = nullptr;
  /// [rows, 2], or null where no backward pass follows: the largest logit of a row, and
  /// the sum of exp(logit - largest). lse alone would not do: where logits are around
  /// 10000 its last bit is a thousandth of every gradient.
  float* saved = nullptr;
  const void* logits = nullptr;
  const void* targets = nullptr;
  TargetType target_type = TargetType::kInt64;
  std::int64_t ignored_index = -100;
  std::int64_t rows = kUnsetSize;
  std::int64_t vocabulary = kUnsetSize;
  std::int64_t padded_vocabulary = 0;  // as in CrossEntropy: for the stride alone
  std::int64_t logits_stride = 0;      // 0: padded_vocabulary
  float smoothing = 0;
};

/// The gradient out of `saved`: the same bits as of cross_entropy().
struct CrossEntropyBackward {
  DType dtype = DType::kUnset;
  void* dlogits = nullptr;
  const void* logits = nullptr;
  const float* saved = nullptr;
  const void* targets = nullptr;
  TargetType target_type = TargetType::kInt64;
  std::int64_t ignored_index = -100;
  std::int64_t rows = kUnsetSize;
  std::int64_t vocabulary = kUnsetSize;
  std::int64_t padded_vocabulary = 0;
  std::int64_t logits_stride = 0;  // 0: padded_vocabulary
  std::int64_t dlogits_stride = 0;
  float smoothing = 0;
  float scale = 1;
  const float* row_scale = nullptr;
};

/// Starts the operation on `device`, one of Service::devices(), in `stream`, and
/// returns. A null stream is the default stream of that device, whatever context is
/// current to the thread, and the caller's context is current again afterwards. The
/// first call for a kernel fetches it as Service::get() does; after prepare() of
/// arguments with the same dtype it works under capture. Errors: kInvalidArgument,
/// before anything is fetched, which names the argument, or for a stream of another
/// device; those of Service::get() and Kernel::launch(). Thread safety: any number of
/// threads.
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

/// Fetches and loads on `device` what the operation would launch there; pointers are
/// not looked at. Errors and thread safety as above.
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const CrossEntropy& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const CrossEntropyForward& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const CrossEntropyBackward& args);

}  // namespace kiln::ops
