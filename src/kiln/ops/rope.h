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
// The first r = rotary_dim elements of each head are rotated in pairs (a, b) by the
// angles of the token's position:
//   out[a] = in[a] * cos[a] - in[b] * sin[a]
//   out[b] = in[b] * cos[b] + in[a] * sin[b]
// The rest of the head is copied. Arithmetic is in float, rounded once at the store.
// The gradient is the transposed map, which is the inverse rotation if a and b have the
// same angle:
//   out[a] = in[a] * cos[a] + in[b] * sin[b]
//   out[b] = in[b] * cos[b] - in[a] * sin[a]
//
// Tensors and tables are device memory; each pointer must be aligned to an element.
// Fastest if tensors and tables are aligned to 16 bytes, and if strides, the rest of a
// head and r (half style: r/2) are multiples of 16 bytes. Out of place: an output, with
// its gaps, must not overlap an input. q.out and k.out may be two parts of one tensor
// in which their heads, tokens or sequences alternate. If keys and values lie between
// groups of query heads, call once per group.
//
// Position ids per token: gather one row of the table for each token, so that the table
// has batch * sequence positions. If all tokens are one stride apart, gather in the
// order of that stride, and call with batch = 1 and sequence = all tokens. With any
// strides, gather sequence after sequence, and call with starts[i] = i * sequence.

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
/// elements of an output may share an address.
struct RopeStrides {
  std::int64_t batch = 0;  // ignored with cu_seqlens
  std::int64_t sequence = 0;
  std::int64_t head = 0;
  std::int64_t dim = 1;
};

/// Query or key: [batch, sequence, heads, head_dim], or [sequence, heads, head_dim] for
/// packed sequences; the strides define the order in memory.
struct RopeTensor {
  void* out = nullptr;
  const void* in = nullptr;
  std::int64_t heads = 0;  // 0: no such tensor; out and in may then be null
  RopeStrides out_strides;
  RopeStrides in_strides;
};

/// The rotation of each position, [positions, columns]: either `angles`, or `cos` and
/// `sin`; the others are null. `columns` is r or r / 2, in either style. With r
/// columns, element d of the head uses column d, so that the two elements of a pair may
/// have different angles. With r / 2 columns, both elements of pair i use column i.
struct RopeTable {
  const float* angles = nullptr;  // radians, of any size; sin and cos to 1 ulp
  const void* cos = nullptr;
  const void* sin = nullptr;
  DType dtype = DType::kUnset;  // of cos and sin: kF32, or that of the tensors
  std::int64_t positions = kUnsetSize;
  std::int64_t columns = kUnsetSize;
  std::int64_t row_stride = 0;  // between positions, in elements; 0: columns
};

/// Token s of sequence i, both counted from 0, has position start + starts[i] + s. A
/// position outside the table is an error if the host can know it. If it depends on
/// device memory (starts, cu_seqlens), it is no error: the table is not read outside
/// its bounds, and the rotated elements of the token become NaN.
struct RopeArguments {
  DType dtype = DType::kUnset;
  KILN_OPTION RopeStyle style = RopeStyle::kUnset;
  std::int64_t batch = kUnsetSize;     // sequences
  std::int64_t sequence = kUnsetSize;  // tokens per sequence; packed: in total
  std::int64_t head_dim = kUnsetSize;
  KILN_OPTION std::int64_t rotary_dim = kUnsetSize;  // r: even, from 2 to head_dim
  RopeTensor q;
  RopeTensor k;  // its heads may differ from q's, or be 0
  RopeTable table;
  KILN_OPTION std::int64_t start = 0;  // 0 or more
  KILN_TENSOR(i32, batch)
  const std::int32_t* starts = nullptr;  // in device memory; null: 0 each
  /// For packed sequences: [batch + 1], in device memory, non-decreasing. Sequence i
  /// has the tokens from cu_seqlens[i] to cu_seqlens[i + 1] - 1. The output of a token
  /// outside all sequences is 0. Null: `batch` sequences of `sequence` tokens each.
  KILN_TENSOR(i32, batch + 1) const std::int32_t* cu_seqlens = nullptr;
};

/// Rotates `in` to `out`.
struct RopeForward : RopeArguments {};

/// `in` is the gradient of rope_forward()'s output, `out` that of its input; all other
/// arguments are those of the forward pass.
struct RopeBackward : RopeArguments {};

/// Launches the operation on `device`, one of Service::devices(), in `stream`;
/// asynchronous. A null stream is the default stream of `device`, whatever context is
/// current; the thread's current context does not change. Query and key take one
/// launch. The first call for a kernel fetches it as Service::get() does, and blocks.
/// After prepare() with the same dtype, style and kind of table (angles, or cos and sin
/// and their dtype), the call works during a stream capture. Errors: kInvalidArgument,
/// before anything is fetched (the argument that it names; a stream of another device);
/// those of Service::get() and Kernel::launch(). Thread safety: any number of threads.
[[nodiscard]] KILN_EXPORT Result<void> rope_forward(Service& service,
                                                    const Device& device,
                                                    CUstream_st* stream,
                                                    const RopeForward& args);
[[nodiscard]] KILN_EXPORT Result<void> rope_backward(Service& service,
                                                     const Device& device,
                                                     CUstream_st* stream,
                                                     const RopeBackward& args);

/// Fetches and loads on `device` the kernels that the operation would launch there.
/// Dereferences no pointer; only uses whether angles, cos, sin, starts and cu_seqlens
/// are null. Errors and thread safety as above.
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const RopeForward& args);
[[nodiscard]] KILN_EXPORT Result<void> prepare(Service& service, const Device& device,
                                               const RopeBackward& args);

}  // namespace kiln::ops
