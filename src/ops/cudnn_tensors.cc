#include "ops/cudnn_tensors.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <utility>

namespace kiln::ops {
namespace {

using attention::TensorPointer;
using attention::TensorRole;

/// cuDNN takes every address as a pointer to non-const.
void* address(const void* pointer) {
  return const_cast<void*>(pointer);
}

std::uint64_t aligned(std::uint64_t bytes) {
  constexpr std::uint64_t kAlignment = attention::kWorkspaceAlignment;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// The struct that the kernel takes by value. It matches kiln_sequences in
/// templates/attention_sequences member by member.
struct Sequences {
  std::int64_t q_row;
  std::int64_t k_row;
  std::int64_t v_row;
  std::int64_t o_row;
  std::int32_t batch;
  std::int32_t sq;
  std::int32_t skv;
  std::int32_t tokens_q;
  std::int32_t tokens_kv;
  std::int32_t unused;
};
static_assert(sizeof(Sequences) == 4 * 8 + 6 * 4);

/// As kiln_mask in templates/attention.
struct Mask {
  std::int64_t batch_stride;
  std::int64_t head_stride;
  std::int64_t row_stride;
  std::int64_t heads;
  std::int64_t rows;
  std::int64_t keys;
};

/// In the order in which the kernel writes them.
void add_sequences(const AttentionCall& call, std::vector<TensorPointer>& all) {
  auto* at = static_cast<std::int32_t*>(call.tensors.workspace);
  for (const TensorRole role : {TensorRole::kOffsetsQ, TensorRole::kOffsetsK,
                                TensorRole::kOffsetsV, TensorRole::kOffsetsO}) {
    all.push_back({role, at});
    at += call.problem.batch + 1;
  }
  for (const TensorRole role : {TensorRole::kLengthsQ, TensorRole::kLengthsKv}) {
    all.push_back({role, at});
    at += call.problem.batch;
  }
}

std::uint64_t sequence_bytes(const attention::Problem& problem) {
  if (problem.layout != attention::Layout::kThd)
    return 0;
  const auto batch = static_cast<std::uint64_t>(problem.batch);
  return aligned(sizeof(std::int32_t) * (4 * (batch + 1) + 2 * batch));
}

Launches sequence_launches(const AttentionCall& call) {
  const attention::Problem& problem = call.problem;
  const AttentionTensors& given = call.tensors;
  if (problem.layout != attention::Layout::kThd)
    return {};
  const auto narrow = [](std::int64_t size) { return static_cast<std::int32_t>(size); };
  const bool is_padded = attention::is_padded(problem.mask);
  const std::array inputs{value("out", given.workspace),
                          value("q_begins", given.cu_seqlens_q),
                          value("kv_begins", given.cu_seqlens_kv),
                          value("q_lengths", is_padded ? given.lengths_q : nullptr),
                          value("kv_lengths", is_padded ? given.lengths_kv : nullptr)};
  Launch launch{.kernel = "attention_sequences_fwd",
                .parameters = {},
                .extents = {{"batch", problem.batch}},
                .arguments = Arguments{inputs}};
  launch.arguments.add("all", Sequences{.q_row = problem.q.sequence,
                                        .k_row = problem.k.sequence,
                                        .v_row = problem.v.sequence,
                                        .o_row = problem.o.sequence,
                                        .batch = narrow(problem.batch),
                                        .sq = narrow(problem.sq),
                                        .skv = narrow(problem.skv),
                                        .tokens_q = packed_rows(given.tokens_q),
                                        .tokens_kv = packed_rows(given.tokens_kv),
                                        .unused = 0});
  return just(std::move(launch));
}

Launches mask_launches(const AttentionCall& call) {
  const attention::Problem& problem = call.problem;
  if (problem.bias_kind != attention::Bias::kBoolean)
    return {};
  const AttentionStrides by = attention::bias_strides(problem);
  const auto [batches, heads, rows] = attention::bias_sizes(problem);
  const auto begin = reinterpret_cast<std::uintptr_t>(call.tensors.workspace);
  const std::array pointers{value("out", begin + sequence_bytes(problem)),
                            value("mask", call.tensors.bias)};
  Launch launch{.kernel = "attention_mask_fwd",
                .parameters = {{"dtype", std::string(to_string(problem.dtype))}},
                .extents = {{"rows", batches * heads * rows}, {"keys", problem.skv}},
                .arguments = Arguments{pointers}};
  launch.arguments.add("all", Mask{.batch_stride = by.batch,
                                   .head_stride = by.head,
                                   .row_stride = by.sequence,
                                   .heads = heads,
                                   .rows = rows,
                                   .keys = problem.skv});
  return just(std::move(launch));
}

}  // namespace

std::uint64_t bytes_before_plan(const attention::Problem& problem) {
  if (problem.bias_kind != attention::Bias::kBoolean)
    return sequence_bytes(problem);
  const auto [batches, heads, rows] = attention::bias_sizes(problem);
  return sequence_bytes(problem) +
         aligned(size_bytes(problem.dtype) *
                 static_cast<std::uint64_t>(batches * heads * rows * problem.skv));
}

Launches launches_before_plan(const AttentionCall& call) {
  Launches all = sequence_launches(call);
  std::ranges::move(mask_launches(call), std::back_inserter(all));
  return all;
}

Launches launches_beside_plan(const AttentionCall& call) {
  Launches all = launches_before_plan(call);
  std::ranges::move(empty_sequence_launches(call), std::back_inserter(all));
  return all;
}

std::vector<TensorPointer> cudnn_tensors(const AttentionCall& call, float& scale) {
  const attention::Problem& problem = call.problem;
  const AttentionTensors& given = call.tensors;
  std::vector<TensorPointer> all{{TensorRole::kQ, address(given.q)},
                                 {TensorRole::kK, address(given.k)},
                                 {TensorRole::kV, address(given.v)},
                                 {TensorRole::kO, given.o},
                                 {TensorRole::kScale, &scale}};
  if (problem.stats)
    all.push_back({TensorRole::kStats, given.stats});
  if (problem.bias_kind == attention::Bias::kPostScale)
    all.push_back({TensorRole::kBias, address(given.bias)});
  if (problem.bias_kind == attention::Bias::kBoolean)
    all.push_back({TensorRole::kBias,
                   static_cast<std::byte*>(given.workspace) + sequence_bytes(problem)});
  if (problem.layout == attention::Layout::kThd) {
    add_sequences(call, all);
  } else if (attention::is_padded(problem.mask)) {
    all.push_back({TensorRole::kLengthsQ, address(given.lengths_q)});
    all.push_back({TensorRole::kLengthsKv, address(given.lengths_kv)});
  }
  if (problem.dropout > 0) {
    all.push_back({TensorRole::kDropoutSeed, address(given.dropout_seed)});
    all.push_back({TensorRole::kDropoutOffset, address(given.dropout_offset)});
  }
  if (problem.pass == attention::Pass::kForward)
    return all;
  all.push_back({TensorRole::kGradO, address(given.grad_o)});
  all.push_back({TensorRole::kGradQ, given.grad_q});
  all.push_back({TensorRole::kGradK, given.grad_k});
  all.push_back({TensorRole::kGradV, given.grad_v});
  if (problem.bias_gradient)
    all.push_back({TensorRole::kGradBias, given.grad_bias});
  return all;
}

}  // namespace kiln::ops
