// Rotary position embedding of queries and keys, and its gradient.
//
//   kiln::ops::RopeForward args;                  // [sequence, batch, heads, dim]
//   args.dtype = kiln::ops::DType::kBf16;
//   args.style = kiln::ops::RopeStyle::kHalf;
//   args.batch = 4;
//   args.sequence = 2048;
//   args.head_dim = args.rotary_dim = 128;
//   const kiln::ops::RopeStrides strides{
//       .batch = 32 * 128, .sequence = 4 * 32 * 128, .head = 128};
//   args.q = {.out = q_out, .in = q, .heads = 32,
//             .out_strides = strides, .in_strides = strides};
//   args.table = {.angles = freqs, .positions = 2048, .columns = 128};
//   kiln::ops::rope_forward(service, device, stream, args);
//
// Of each head the first rotary_dim elements, r of them, are rotated in pairs (a, b) by
// the angles of the token's position:
//   out[a] = in[a] * cos[a] - in[b] * sin[a]
//   out[b] = in[b] * cos[b] + in[a] * sin[b]
// The rest of the head is copied. Products and sums are in float, with one rounding at
// the store. The gradient is the transposed map, which turns back where cos and sin are
// those of one angle for a and b:
//   out[a] = in[a] * cos[a] + in[b] * sin[b]
//   out[b] = in[b] * cos[b] - in[a] * sin[a]
//
// Fastest where tensors and tables are aligned to 16 bytes, and strides, r (half style:
// r / 2) and the rest of a head are multiples of 16 bytes. Out of place: from its first
// element to its last, with what lies between its heads, an output must not overlap an
// input. The two outputs may be parts of one tensor, side by side in each head, token
// or sequence. Where query heads lie in groups with keys and values between them, call
// it once for each group.

#pragma once

#include <cstdint>

#include "kiln/device.h"
#include "kiln/export.h"
#include "kiln/ops/dtype.h"
#include "kiln/result.h"
#include "kiln/service.h"

namespace kiln::ops {

/// Which elements of a head make a pair.
enum class RopeStyle : std::uint8_t {
  kUnset,
  kHalf,         // d and d + r / 2: GPT-NeoX, Llama
  kInterleaved,  // 2k and 2k + 1: GPT-J
};

/// In elements, 0 or more. The stride of a dimension of size 1 is ignored. No two
/// elements of an output may lie at one address.
struct RopeStrides {
  std::int64_t batch = 0;  // ignored for packed sequences
  std::int64_t sequence = 0;
  std::int64_t head = 0;
  std::int64_t dim = 1;
};

/// Query or key: [batch, sequence, heads, head_dim], or [sequence, heads, head_dim] for
/// packed sequences. The strides alone say where its elements lie.
struct RopeTensor {
  void* out = nullptr;
  const void* in = nullptr;
  std::int64_t heads = 0;  // 0: no such tensor
  RopeStrides out_strides;
  RopeStrides in_strides;
};

/// The rotation of each position: [positions, columns], either angles, or cosines and
/// sines. With r columns, element d uses column d, and the two elements of a pair may
/// differ; with r / 2 columns, pair i uses column i. For both styles.
struct RopeTable {
  const float* angles = nullptr;  // in radians; of any size, sin and cos to an ulp
  const void* cos = nullptr;
  const void* sin = nullptr;
  DType dtype = DType::kUnset;  // of cos and sin: f32, or that of the tensors
  std::int64_t positions = kUnsetSize;
  std::int64_t columns = kUnsetSize;
  std::int64_t row_stride = 0;  // from position to position, in elements; 0: columns
};

/// Token s of sequence i has position start + starts[i] + s. A position outside the
/// table is an error where the arguments tell it. Where it comes out of device memory
/// (starts, cu_seqlens), nothing outside is read, and the token's rotated elements
/// become NaN.
struct RopeArguments {
  DType dtype = DType::kUnset;
  RopeStyle style = RopeStyle::kUnset;
  std::int64_t batch = kUnsetSize;     // sequences
  std::int64_t sequence = kUnsetSize;  // tokens of each, or of all that are packed
  std::int64_t head_dim = kUnsetSize;
  std::int64_t rotary_dim = kUnsetSize;  // r: even, 2 to head_dim
  RopeTensor q;
  RopeTensor k;  // may have other heads than q, or none
  RopeTable table;
  std::int64_t start = 0;
  const std::int32_t* starts = nullptr;  // [batch], or null: 0 each
  /// For packed sequences: [batch + 1], not decreasing. Sequence i has the tokens from
  /// cu_seqlens[i] up to cu_seqlens[i + 1]. A token of no sequence becomes 0.
  const std::int32_t* cu_seqlens = nullptr;
};

/// Rotates `in` to `out`.
struct RopeForward : RopeArguments {};

/// `in` is the gradient of rope_forward()'s output, `out` that of its input; all other
/// arguments are those of the forward pass.
struct RopeBackward : RopeArguments {};

/// Starts the operation on `device`, one of Service::devices(), in `stream`, and
/// returns. A null stream means that device's default stream, whatever context is
/// current; the caller's context stays current. Query and key take one launch. The
/// first call for a kernel fetches it as Service::get() does; after prepare() of
/// arguments with the same dtype, style and kind of table it works under capture.
/// Errors: kInvalidArgument, before anything is fetched (a wrong argument, which it
/// names; a stream of another device); those of Service::get() and Kernel::launch().
/// Thread safety: any number of threads.
[[nodiscard]] KILN_EXPORT Result<void> rope_forward(Service& service,
                                                    const Device& device,
                                                    CUstream_st* stream,
                                                    const RopeForward& args);
[[nodiscard]] KILN_EXPORT Result<void> rope_backward(Service& service,
                                                     const Device& device,
                                                     CUstream_st* stream,
                                                     const RopeBackward& args);

/// Fetches and loads on `device` the kernels that the operation would launch there. Of
/// pointers it looks only at which of the table's are null. Errors and thread safety as
/// above.
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const RopeForward& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const RopeBackward& args);

}  // namespace kiln::ops
