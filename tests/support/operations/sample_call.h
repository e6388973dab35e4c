// Small valid calls of each operation but attention, for what holds for all of them.
// The addresses alone count: nothing is read or written there.

#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "ops/operation_table.h"

namespace kiln::test {

/// Which pointers a call has: as many as possible; likewise, but with those that
/// exclude some of the first, and of other types; those alone that each call needs.
enum class Sample : std::uint8_t { kMost, kOther, kFewest };

/// From one pointer of a call to the next, more than any of them needs.
inline constexpr std::uint64_t kSampleApart = 1 << 20;
inline constexpr std::uint64_t kSampleWorkspace = kSampleApart / 2;

template <typename Args>
inline constexpr bool kIsGlu = requires(Args args) {
  args.layout;
};
template <typename Args>
inline constexpr bool kIsNormBackward = requires(Args args) {
  args.from_output;
};
template <typename Args>
inline constexpr bool kHasTargets = requires(Args args) {
  args.targets;
};
template <typename Args>
inline constexpr bool kIsRope = requires(Args args) {
  args.table;
};

/// Those that differ.
template <typename Args>
[[nodiscard]] std::vector<Sample> samples_of() {
  if constexpr (std::is_same_v<Args, ops::SoftmaxBackward>)
    return {Sample::kMost};
  else if constexpr (kIsGlu<Args> || kIsNormBackward<Args> || kIsRope<Args> ||
                     kHasTargets<Args> || std::is_same_v<Args, ops::SoftmaxForward>)
    return {Sample::kMost, Sample::kOther, Sample::kFewest};
  else
    return {Sample::kMost, Sample::kFewest};
}

template <typename Args>
void choose_sizes(Args& args) {
  args.dtype = ops::DType::kBf16;
  if constexpr (requires { args.rows; })
    args.rows = 6;
  if constexpr (requires { args.cols; })
    args.cols = 40;
  if constexpr (kHasTargets<Args>) {
    args.vocabulary = 40;
    args.padded_vocabulary = 48;
    args.logits_stride = 56;
  }
  if constexpr (requires { args.dlogits_stride; })
    args.dlogits_stride = 64;
  if constexpr (requires { args.skv; }) {
    args.batch = 2;
    args.heads = 3;
    args.sq = 5;
    args.skv = 8;
  }
  if constexpr (requires { args.workspace; })
    args.workspace_bytes = kSampleWorkspace;
  if constexpr (kIsRope<Args>) {
    args.batch = 2;
    args.sequence = 3;
    args.head_dim = 16;
    args.rotary_dim = 8;
    args.q.heads = 4;
    args.k.heads = 2;
    for (auto* const tensor : {&args.q, &args.k}) {
      const std::int64_t token = 16 * tensor->heads;
      tensor->out_strides = {.batch = token, .sequence = 2 * token, .head = 16};
      tensor->in_strides = {.batch = 4 * token, .sequence = token, .head = 16};
    }
    args.table.positions = 10;
    args.table.columns = 8;
    args.table.row_stride = 12;
  }
}

template <typename Args>
void choose_options(Args& args, Sample sample) {
  const bool has_all = sample == Sample::kMost;
  const bool is_other = sample == Sample::kOther;
  const bool has_some = has_all || is_other;
  if constexpr (requires { args.kind; })
    args.kind = static_cast<decltype(args.kind)>(1);  // the first that is set
  if constexpr (requires { args.style; })
    args.style = ops::RopeStyle::kHalf;
  if constexpr (kIsGlu<Args>) {
    args.layout = has_all ? ops::GluLayout::kSplit : ops::GluLayout::kPacked;
    args.has_bias = is_other;
    args.has_weight = has_all;
    args.alpha = args.limit = args.offset = 1;
  } else {
    if constexpr (requires { args.has_bias; })
      args.has_bias = has_some;
    if constexpr (requires { args.has_weight; })
      args.has_weight = has_some;
  }
  if constexpr (requires { args.weight_dtype; })
    args.weight_dtype = has_all ? ops::DType::kF32 : ops::DType::kUnset;
  if constexpr (requires { args.adds_residual; })
    args.adds_residual = has_some;
  if constexpr (kIsNormBackward<Args>) {
    args.has_dweight = has_some;
    args.from_output = is_other;
  }
  if constexpr (kHasTargets<Args>)
    args.target_type = has_all ? ops::TargetType::kInt64 : ops::TargetType::kInt32;
  if constexpr (requires { args.mask_batch; }) {
    args.mask = has_some ? ops::SoftmaxMask::kBytes : ops::SoftmaxMask::kNone;
    args.mask_batch = is_other ? 1 : 0;
  }
  if constexpr (kIsRope<Args>) {
    args.table.dtype = ops::DType::kBf16;
    if (!has_some)
      args.k = {};
  }
}

/// Null for the pointers that the options above give no use, and for optional ones of
/// the fewest.
template <typename Args>
void leave_out_pointers(Args& args, Sample sample) {
  const auto keep_if = [](bool is_used, auto*&... pointers) {
    ((pointers = is_used ? pointers : nullptr), ...);
  };
  const bool has_all = sample == Sample::kMost;
  const bool has_some = sample != Sample::kFewest;
  if constexpr (requires { args.has_bias; })
    keep_if(args.has_bias, args.bias);
  if constexpr (requires { args.dbias; })
    keep_if(args.has_bias, args.dbias);
  if constexpr (requires { args.has_weight; })
    keep_if(args.has_weight, args.weight);
  if constexpr (requires { args.dweight; })
    keep_if(args.has_weight, args.dweight);
  if constexpr (requires { args.sum; })
    keep_if(has_some, args.sum, args.residual, args.rstd);
  if constexpr (requires {
                  args.sum;
                  args.mean;
                })
    keep_if(has_some, args.mean);
  if constexpr (kIsNormBackward<Args>) {
    keep_if(has_some, args.dsum, args.workspace);
    keep_if(args.from_output, args.y);
    keep_if(!args.from_output, args.x);
    if constexpr (requires { args.mean; }) {
      keep_if(args.from_output, args.bias);
      keep_if(!args.from_output, args.mean);
    }
  }
  if constexpr (kIsGlu<Args>)
    keep_if(args.layout == ops::GluLayout::kSplit, args.linear);
  if constexpr (requires { args.dlinear; })
    keep_if(args.layout == ops::GluLayout::kSplit, args.dlinear);
  if constexpr (requires { args.mask_bytes; })
    keep_if(has_some, args.mask_bytes);
  if constexpr (requires { args.lse; })
    keep_if(has_some, args.lse);
  if constexpr (requires {
                  args.lse;
                  args.saved;
                })
    keep_if(has_some, args.saved);
  if constexpr (requires { args.row_scale; })
    keep_if(has_some, args.row_scale);
  if constexpr (kIsRope<Args>) {
    keep_if(has_all, args.table.cos, args.table.sin, args.cu_seqlens);
    keep_if(!has_all, args.table.angles);
    keep_if(has_some, args.k.out, args.k.in, args.starts);
  }
}

/// Each pointer has memory of its own, the first at `memory`.
template <typename Args>
[[nodiscard]] Args sample_call(Sample sample, std::uint64_t memory = 1U << 30U) {
  Args args;
  choose_sizes(args);
  choose_options(args, sample);
  ops::for_each_pointer(args, [&memory](auto*& pointer) {
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(memory);
    memory += kSampleApart;
  });
  leave_out_pointers(args, sample);
  return args;
}

}  // namespace kiln::test
