// Rotary position embedding: what it checks and launches. kiln/ops/rope.h says what it
// computes.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "ops/ceil_div.h"
#include "ops/check.h"
#include "ops/plans.h"
#include "ops/strides.h"
#include "util/try.h"

namespace kiln::ops {
namespace {

constexpr std::int64_t kVectorBytes = 16;

bool is_packed(const RopeArguments& args) {
  return args.cu_seqlens != nullptr;
}
std::int64_t tokens_of(const RopeArguments& args) {
  return is_packed(args) ? args.sequence : args.batch * args.sequence;
}
std::int64_t row_stride_of(const RopeTable& table) {
  return table.row_stride == 0 ? table.columns : table.row_stride;
}
bool has_angles(const RopeTable& table) {
  return table.angles != nullptr;
}
DType dtype_of(const RopeTable& table) {
  return has_angles(table) ? DType::kF32 : table.dtype;
}
std::int64_t span_of(const RopeTable& table) {
  return (table.positions - 1) * row_stride_of(table) + table.columns;
}

using Dimensions = std::array<Dimension, 4>;

Dimensions dimensions_of(const RopeArguments& args, const RopeTensor& tensor,
                         const RopeStrides& strides) {
  return {{{"batch", is_packed(args) ? 1 : args.batch, strides.batch},
           {"sequence", args.sequence, strides.sequence},
           {"head", tensor.heads, strides.head},
           {"dim", args.head_dim, strides.dim}}};
}

/// The strides that the kernel gets. The stride of a dimension of size 1 is unused and
/// may have any value; replacing it by 0 allows vector accesses.
RopeStrides used_strides(const Dimensions& dimensions) {
  const auto used = [](const Dimension& each) {
    return each.size > 1 ? each.stride : 0;
  };
  return {.batch = used(dimensions[0]),
          .sequence = used(dimensions[1]),
          .head = used(dimensions[2]),
          .dim = dimensions[3].size > 1 ? dimensions[3].stride : 1};
}

// ---- Checks

Result<void> check_table(const RopeArguments& args) {
  const RopeTable& table = args.table;
  if (has_angles(table) == (table.cos != nullptr || table.sin != nullptr))
    return refuse("the table has either angles, or cos and sin");
  if (!has_angles(table)) {
    if (table.cos == nullptr || table.sin == nullptr)
      return refuse("table.{} is null", table.cos == nullptr ? "cos" : "sin");
    if (table.dtype != DType::kF32 && table.dtype != args.dtype)
      return refuse("table.dtype is {}: f32, or the tensors' {}",
                    to_string(table.dtype), to_string(args.dtype));
  }
  KILN_TRY(element_count(
      {{"table.positions", table.positions}, {"table.columns", table.columns}}));
  if (table.columns != args.rotary_dim && table.columns != args.rotary_dim / 2)
    return refuse(
        "table.columns is {}: rotary_dim, {}, or half "
        "of it",
        table.columns, args.rotary_dim);
  if (table.row_stride != 0 && table.row_stride < table.columns)
    return refuse(
        "table.row_stride is {}, and a row has {} "
        "columns",
        table.row_stride, table.columns);
  if (table.positions < 1)
    return refuse("table.positions is {}", table.positions);
  return element_count({{"table.positions", table.positions},
                        {"a row of the table", row_stride_of(table)}})
      .map([](std::int64_t /*count*/) {});
}

/// Checks positions against the table, as far as the host knows them.
Result<void> check_positions(const RopeArguments& args) {
  if (args.start < 0)
    return refuse("start is {}", args.start);
  if (args.starts != nullptr)
    return {};
  // The longest packed sequence is unknown here; it has at least one token.
  const std::int64_t most = is_packed(args) ? 1 : args.sequence;
  if (most > args.table.positions || args.start > args.table.positions - most)
    return refuse("position {} is outside the table, which has {}",
                  args.start + most - 1, args.table.positions);
  return {};
}

Result<void> check_tensor(const RopeArguments& args, std::string_view name,
                          const RopeTensor& tensor) {
  if (tensor.heads == 0)
    return {};
  const std::string out = fmt::format("{}.out", name);
  const Dimensions written = dimensions_of(args, tensor, tensor.out_strides);
  KILN_TRY(span_of(out, written));
  KILN_TRY(check_apart(out, written));
  const Dimensions read = dimensions_of(args, tensor, tensor.in_strides);
  KILN_TRY(span_of(fmt::format("{}.in", name), read));
  // Dimensions may be broadcast, but not all of them.
  const bool is_walked =
      std::any_of(read.begin(), read.end() - 1,
                  [](const auto& each) { return each.size > 1 && each.stride != 0; });
  const bool is_one_head = std::all_of(read.begin(), read.end() - 1,
                                       [](const auto& each) { return each.size == 1; });
  if (!is_walked && !is_one_head)
    return refuse(
        "{}.in_strides are 0: every token would have "
        "the same head",
        name);
  return {};
}

/// The number of elements.
Result<std::int64_t> check(const RopeArguments& args) {
  KILN_TRY(check_dtype(args.dtype));
  if (args.style != RopeStyle::kHalf && args.style != RopeStyle::kInterleaved)
    return refuse("style is not set: kHalf or kInterleaved");
  KILN_TRY(element_count({{"batch", args.batch}}));
  KILN_TRY(element_count({{"rotary_dim", args.rotary_dim}}));
  KILN_TRY(element_count({{"q.heads", args.q.heads}}));
  KILN_TRY(element_count({{"k.heads", args.k.heads}}));
  const std::int64_t heads = args.q.heads + args.k.heads;
  const std::int64_t elements =
      KILN_TRY(element_count({{"batch", is_packed(args) ? 1 : args.batch},
                              {"sequence", args.sequence},
                              {"heads", heads},
                              {"head_dim", args.head_dim}}));
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // an int in the kernel
  if (heads > kMost || args.head_dim > kMost)
    return refuse("heads or head_dim is above 2^30");
  if (args.rotary_dim < 2 || args.rotary_dim % 2 != 0 ||
      args.rotary_dim > args.head_dim)
    return refuse("rotary_dim is {}: even, and 2 to head_dim, {}", args.rotary_dim,
                  args.head_dim);
  KILN_TRY(check_table(args));
  if (elements == 0)
    return 0;
  KILN_TRY(check_positions(args));
  KILN_TRY(check_tensor(args, "q", args.q));
  KILN_TRY(check_tensor(args, "k", args.k));
  return elements;
}

// ---- The choice

std::string_view table_of(const RopeArguments& args) {
  if (has_angles(args.table))
    return "angles";
  return args.table.dtype == args.dtype ? "cos_sin" : "cos_sin_f32";
}

/// How many threads share the heads of a token. Each thread reads the table for as many
/// heads as possible, provided that the threads can fill the device twice. The same for
/// every architecture.
struct Division {
  std::int64_t lanes;
  std::int64_t slots;  // threads per token
};

Division divide(const RopeArguments& args, const Device& device) {
  constexpr std::int64_t kThreadsOfMultiprocessor = 512;  // limited by registers
  const std::int64_t vector =
      kVectorBytes / static_cast<std::int64_t>(size_bytes(args.dtype));
  const bool by_halves = args.style == RopeStyle::kHalf;
  const std::int64_t piece = by_halves ? 2 * vector : vector;
  const std::int64_t pieces = ceil_div(args.head_dim, piece);
  const std::int64_t heads = args.q.heads + args.k.heads;
  const std::int64_t enough =
      2 * kThreadsOfMultiprocessor * std::max(device.multiprocessors, 1);
  // Heads per thread: two rounds of the loads that it has in flight at once.
  std::int64_t each = by_halves ? 8 : 16;
  while (each > 1 && tokens_of(args) * pieces * ceil_div(heads, each) < enough)
    each /= 2;
  const std::int64_t lanes = ceil_div(heads, each);
  return {lanes, pieces * lanes};
}

// ---- What the kernels take

/// The extent of the dimensions from `from` to the last, in elements. check() has
/// accepted the strides, so there is one.
std::int64_t inner_span(Dimensions dimensions, std::size_t from) {
  for (std::size_t i = 0; i < from; ++i) dimensions[i].size = 1;
  return span_of({}, dimensions).value_or(0);
}

/// Argument names: out and in, each as the kernel and as callers name it; their
/// strides; the number of heads.
using TensorNames = std::array<std::string_view, 13>;
constexpr TensorNames kQ{"q_out",       "q.out",          "q_in",       "q.in",
                         "q_out_batch", "q_out_sequence", "q_out_head", "q_out_dim",
                         "q_in_batch",  "q_in_sequence",  "q_in_head",  "q_in_dim",
                         "q_heads"};
constexpr TensorNames kK{"k_out",       "k.out",          "k_in",       "k.in",
                         "k_out_batch", "k_out_sequence", "k_out_head", "k_out_dim",
                         "k_in_batch",  "k_in_sequence",  "k_in_head",  "k_in_dim",
                         "k_heads"};

auto tensor_arguments(const RopeArguments& args, const RopeTensor& tensor,
                      const TensorNames& names) {
  const std::size_t element = size_bytes(args.dtype);
  const Dimensions written = dimensions_of(args, tensor, tensor.out_strides);
  const Dimensions read = dimensions_of(args, tensor, tensor.in_strides);
  const RopeStrides out = used_strides(written);
  const RopeStrides in = used_strides(read);
  return std::array{
      writes(names[0], tensor.out, {inner_span(written, 0), element}, names[1]),
      reads(names[2], tensor.in, {inner_span(read, 0), element}, names[3]),
      value(names[4], out.batch),
      value(names[5], out.sequence),
      value(names[6], out.head),
      value(names[7], out.dim),
      value(names[8], in.batch),
      value(names[9], in.sequence),
      value(names[10], in.head),
      value(names[11], in.dim),
      value(names[12], static_cast<int>(tensor.heads))};
}

auto token_arguments(const RopeArguments& args, std::int64_t lanes) {
  const RopeTable& table = args.table;
  const bool with_angles = has_angles(table);
  const Elements entries{span_of(table), size_bytes(dtype_of(table))};
  const Elements sequences{args.batch, sizeof(std::int32_t)};
  const Elements bounds{args.batch + 1, sizeof(std::int32_t)};
  return std::array{
      reads("angles", table.angles, entries, "table.angles").exists_if(with_angles),
      reads("cos", table.cos, entries, "table.cos").exists_if(!with_angles),
      reads("sin", table.sin, entries, "table.sin").exists_if(!with_angles),
      value("table_positions", table.positions),
      value("table_stride", row_stride_of(table)),
      value("table_paired", table.columns == args.rotary_dim ? 0 : 1),
      value("batch", args.batch),
      value("sequence", args.sequence),
      value("dim", static_cast<int>(args.head_dim)),
      value("rotary", static_cast<int>(args.rotary_dim)),
      value("start", args.start),
      reads("starts", args.starts, sequences).if_set(),
      reads("cu_seqlens", args.cu_seqlens, bounds).if_set(),
      value("lanes", static_cast<int>(lanes))};
}

/// Whether the outputs lie side by side in each head, token or sequence. Outputs that
/// are parts of one tensor have interleaved ranges, but share no element.
bool are_side_by_side(const RopeArguments& args) {
  const Dimensions q = dimensions_of(args, args.q, args.q.out_strides);
  const Dimensions k = dimensions_of(args, args.k, args.k.out_strides);
  const auto bytes = reinterpret_cast<std::intptr_t>(args.k.out) -
                     reinterpret_cast<std::intptr_t>(args.q.out);
  const auto apart = bytes / static_cast<std::intptr_t>(size_bytes(args.dtype));
  for (const std::size_t outer : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
    const std::int64_t q_span = inner_span(q, outer);
    const std::int64_t k_span = inner_span(k, outer);
    const std::int64_t both =
        std::max(q_span, apart + k_span) - std::min<std::int64_t>(0, apart);
    if (both < q_span + k_span)
      continue;  // they overlap
    Dimensions joined = q;
    joined[3] = {"both", both, 1};
    bool same = true;
    for (std::size_t i = 0; i < 3; ++i) {
      same = same && (i >= outer || (q[i].size == k[i].size &&
                                     (q[i].size == 1 || q[i].stride == k[i].stride)));
      joined[i].size = i < outer ? q[i].size : 1;
    }
    if (same && check_apart({}, joined))
      return true;
  }
  return false;
}

Result<Launches> make_plan(std::string_view kernel, const RopeArguments& args,
                           const Device& device, Pointers pointers) {
  if (KILN_TRY(check(args)) == 0)
    return Launches{};
  const Division division = divide(args, device);
  const auto q = tensor_arguments(args, args.q, kQ);
  const auto k = tensor_arguments(args, args.k, kK);
  const auto tokens = token_arguments(args, division.lanes);
  const Outputs outputs =
      are_side_by_side(args) ? Outputs::kInterleaved : Outputs::kApart;
  KILN_TRY(check_memory({q, k, tokens}, pointers, outputs));
  const bool by_halves = args.style == RopeStyle::kHalf;
  Launch launch{.kernel = std::string(kernel),
                .parameters = {{"dtype", std::string(to_string(args.dtype))},
                               {"style", by_halves ? "half" : "interleaved"},
                               {"table", std::string(table_of(args))}},
                .extents = {{"tokens", tokens_of(args)}, {"slots", division.slots}},
                .arguments = Arguments{q, k, tokens}};
  return just(std::move(launch));
}

}  // namespace

Result<Launches> make_plan(const RopeForward& args, const Device& device,
                           Pointers pointers) {
  return make_plan("rope_fwd", args, device, pointers);
}
Result<Launches> make_plan(const RopeBackward& args, const Device& device,
                           Pointers pointers) {
  return make_plan("rope_bwd", args, device, pointers);
}

}  // namespace kiln::ops
