#include "ops/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <string_view>

#include "attention/kernel_choice.h"
#include "ops/attention_arguments.h"
#include "ops/check.h"
#include "util/try.h"

namespace kiln::ops {
namespace {

using attention::Bias;
using attention::Layout;
using attention::Pass;
using attention::Problem;

bool is_backward(const Problem& problem) {
  return problem.pass == Pass::kBackward;
}

AttentionStrides strides_of(const Problem& problem, const attention::Strides& strides) {
  return {.batch = strides.batch,
          .head = strides.head,
          .group = attention::group_gap(problem, strides),
          .row = strides.sequence};
}

/// The kernels add these to positions in sequences: no more than both lengths matter.
std::int32_t bound_of(std::int64_t bound, const Problem& problem) {
  return static_cast<std::int32_t>(std::min(bound, problem.sq + problem.skv));
}

AttentionSizes sizes_of(const AttentionCall& call) {
  const Problem& problem = call.problem;
  const auto narrow = [](std::int64_t size) { return static_cast<std::int32_t>(size); };
  return {.q = strides_of(problem, problem.q),
          .k = strides_of(problem, problem.k),
          .v = strides_of(problem, problem.v),
          .o = strides_of(problem, problem.o),
          .bias = {.batch = 0,
                   .head = problem.sq * problem.skv,
                   .group = 0,
                   .row = problem.skv},
          .batch = narrow(problem.batch),
          .heads = narrow(problem.heads),
          .kv_heads = narrow(problem.kv_heads),
          .sq = narrow(problem.sq),
          .skv = narrow(problem.skv),
          .dqk = narrow(problem.dqk),
          .dv = narrow(problem.dv),
          .left = bound_of(problem.window_left, problem),
          .right = bound_of(attention::right_bound(problem), problem),
          .bottom_right = attention::is_bottom_right(problem.mask) ? 1 : 0,
          .scale = scale_of(call),
          .dropped = static_cast<std::int32_t>(std::lround(problem.dropout * 65536))};
}

/// What every kernel takes after its own pointers and q, k and v.
void add_rest(Arguments& arguments, const AttentionCall& call) {
  const AttentionTensors& tensors = call.tensors;
  const bool is_packed = call.problem.layout == Layout::kThd;
  const bool is_padded = attention::is_padded(call.problem.mask);
  arguments.add(call.problem.bias == Bias::kPostScale ? tensors.bias : nullptr);
  arguments.add(is_packed ? tensors.cu_seqlens_q : nullptr);
  arguments.add(is_packed ? tensors.cu_seqlens_kv : nullptr);
  arguments.add(is_padded ? tensors.lengths_q : nullptr);
  arguments.add(is_padded ? tensors.lengths_kv : nullptr);
  arguments.add(tensors.dropout_seed);
  arguments.add(tensors.dropout_offset);
  arguments.add(sizes_of(call));
}

Launch forward(const AttentionCall& call, attention::KernelChoice choice) {
  const AttentionTensors& tensors = call.tensors;
  const Problem& problem = call.problem;
  Launch launch{
      .kernel = std::move(choice.kernel),
      .parameters = std::move(choice.parameters),
      .extents = {{"batch", problem.batch},
                  {"heads", problem.heads},
                  {"sq", problem.sq}},
      .arguments = Arguments(tensors.o, problem.stats ? tensors.stats : nullptr,
                             tensors.q, tensors.k, tensors.v)};
  add_rest(launch.arguments, call);
  return launch;
}

/// dq and delta, then dk and dv.
Plan backward(const AttentionCall& call, const attention::KernelChoice& choice) {
  const AttentionTensors& tensors = call.tensors;
  const Problem& problem = call.problem;
  auto* const delta = static_cast<float*>(tensors.workspace);
  Launch of_queries{.kernel = choice.kernel,
                    .parameters = choice.parameters,
                    .extents = {{"batch", problem.batch},
                                {"heads", problem.heads},
                                {"kv_heads", problem.kv_heads},
                                {"sq", problem.sq},
                                {"skv", problem.skv}},
                    .arguments = {}};
  Launch of_keys = of_queries;
  of_keys.entry = choice.kernel + "_kv";
  of_queries.arguments = Arguments(tensors.grad_q, delta, tensors.grad_o, tensors.o,
                                   tensors.stats, tensors.q, tensors.k, tensors.v);
  of_keys.arguments = Arguments(tensors.grad_k, tensors.grad_v, delta, tensors.grad_o,
                                tensors.stats, tensors.q, tensors.k, tensors.v);
  add_rest(of_queries.arguments, call);
  add_rest(of_keys.arguments, call);
  return {std::move(of_queries), std::move(of_keys)};
}

Launch bias_backward(const AttentionCall& call, attention::KernelChoice choice) {
  const AttentionTensors& tensors = call.tensors;
  const Problem& problem = call.problem;
  constexpr std::int32_t kBatches = 1;
  const auto heads = static_cast<std::int32_t>(problem.heads);
  Launch launch{
      .kernel = std::move(choice.kernel),
      .parameters = std::move(choice.parameters),
      .extents = {{"bias_batches", kBatches},
                  {"bias_heads", heads},
                  {"sq", problem.sq}},
      .arguments = Arguments(tensors.grad_bias, tensors.workspace, tensors.grad_o,
                             tensors.stats, tensors.q, tensors.k, tensors.v)};
  add_rest(launch.arguments, call);
  launch.arguments.add(kBatches);
  launch.arguments.add(heads);
  return launch;
}

/// Blocks write rows of their own: two of them must not be the same memory. Each stride
/// has to step over all that the smaller ones reach.
Result<void> check_written(const Problem& problem) {
  const bool is_packed = problem.layout == Layout::kThd;
  const auto check = [&](std::string_view name, const attention::Strides& strides,
                         std::int64_t heads, std::int64_t rows,
                         std::int64_t dim) -> Result<void> {
    struct Axis {
      std::int64_t stride;
      std::int64_t size;
    };
    // How many tokens are packed is on the device.
    const std::int64_t groups = strides.group == 0 ? 1 : problem.kv_heads;
    std::array axes{Axis{strides.dim, dim}, Axis{strides.head, heads / groups},
                    Axis{strides.group, groups},
                    Axis{strides.sequence, is_packed ? 2 : rows},
                    Axis{strides.batch, is_packed ? 1 : problem.batch}};
    std::ranges::sort(axes, {}, &Axis::stride);
    std::int64_t reached = 1;  // elements, from the first to the last
    for (const auto& [stride, size] : axes) {
      if (size > 1 && stride < reached)
        return refuse(
            operation_of(problem.pass),
            fmt::format("{} is written, and rows of it share memory: a stride of {} "
                        "does not step over {} elements; of a key or value that heads "
                        "share, say so by kv_heads",
                        name, stride, reached));
      reached += size > 1 ? (size - 1) * stride : 0;
    }
    return {};
  };
  if (!is_backward(problem))
    return check("o", problem.o, problem.heads, problem.sq, problem.dv);
  KILN_TRY(check("grad_q", problem.q, problem.heads, problem.sq, problem.dqk));
  KILN_TRY(check("grad_k", problem.k, problem.kv_heads, problem.skv, problem.dqk));
  return check("grad_v", problem.v, problem.kv_heads, problem.skv, problem.dv);
}

/// What a tensor covers for certain: all of it where it has no gaps, else its first
/// row, since in the gaps may be another one.
std::uint64_t bytes_of(const Problem& problem, std::int64_t heads, std::int64_t rows,
                       std::int64_t dim, const attention::Strides& strides) {
  const std::int64_t elements = problem.batch * heads * rows * dim;
  const std::int64_t last =
      (problem.batch - 1) * strides.batch + (heads - 1) * strides.head +
      (problem.kv_heads - 1) * attention::group_gap(problem, strides) +
      (rows - 1) * strides.sequence + dim - 1;
  return size_bytes(problem.dtype) *
         static_cast<std::uint64_t>(last < elements ? last + 1 : dim);
}

}  // namespace

std::string_view operation_of(Pass pass) {
  return pass == Pass::kBackward ? "attention_backward" : "attention_forward";
}

float scale_of(const AttentionCall& call) {
  return call.tensors.scale.value_or(
      static_cast<float>(1 / std::sqrt(static_cast<double>(call.problem.dqk))));
}

attention::CallProperties properties_of(const AttentionCall& call) {
  const AttentionTensors& tensors = call.tensors;
  const auto are = [](std::initializer_list<const void*> all) {
    return std::ranges::all_of(all, [](const void* at) {
      return reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
    });
  };
  return {.is_aligned =
              are({tensors.q, tensors.k, tensors.v, tensors.o}) &&
              (!is_backward(call.problem) ||
               are({tensors.grad_o, tensors.grad_q, tensors.grad_k, tensors.grad_v})),
          .has_positive_scale = scale_of(call) > 0};
}

std::uint64_t attention_workspace_bytes(const Problem& problem) {
  return is_backward(problem)
             ? sizeof(float) * static_cast<std::uint64_t>(problem.batch *
                                                          problem.heads * problem.sq)
             : 0;
}

Result<void> check_options(const AttentionCall& call) {
  const Problem& problem = call.problem;
  if (const auto valid = attention::validate(problem); !valid)
    return refuse(operation_of(problem.pass), valid.error().message);
  KILN_TRY(check_written(problem));
  if (const float scale = scale_of(call); !std::isfinite(scale))
    return refuse(operation_of(problem.pass), fmt::format("scale is {}", scale));
  return {};
}

Result<Plan> launches(const AttentionCall& call, const Device& device) {
  const Problem& problem = call.problem;
  KILN_TRY(check_workspace(operation_of(problem.pass), call.tensors.workspace,
                           call.tensors.workspace_bytes,
                           attention_workspace_bytes(problem)));
  attention::KernelChoice choice = KILN_TRY(
      attention::choose_kernel(problem, device.capability, properties_of(call)));
  if (!is_backward(problem))
    return Plan{forward(call, std::move(choice))};
  Plan all = backward(call, choice);
  if (problem.bias_gradient)
    all.push_back(bias_backward(
        call, KILN_TRY(attention::choose_bias_kernel(problem, device.capability))));
  return all;
}

Result<Plan> plan(const AttentionCall& call, const Device& device) {
  KILN_TRY(check_options(call));
  return launches(call, device);
}

Result<void> check_pointers(const AttentionCall& call) {
  const Problem& problem = call.problem;
  const AttentionTensors& tensors = call.tensors;
  const std::uint64_t element = size_bytes(problem.dtype);
  const bool is_packed = problem.layout == Layout::kThd;
  Problem one_token = problem;  // how many a packed tensor has is on the device
  one_token.batch = is_packed ? 1 : problem.batch;
  const auto tensor = [&](std::string_view name, const void* at, std::int64_t heads,
                          std::int64_t rows, std::int64_t dim,
                          const attention::Strides& strides) {
    return Memory{name, at,
                  bytes_of(one_token, heads, is_packed ? 1 : rows, dim, strides),
                  element};
  };
  const auto array = [](std::string_view name, const void* at, bool is_there,
                        std::int64_t count, std::size_t size) {
    return Memory{name, at, is_there ? static_cast<std::uint64_t>(count) * size : 0,
                  size};
  };
  const auto of_q = [&](std::string_view name, const void* at) {
    return tensor(name, at, problem.heads, problem.sq, problem.dqk, problem.q);
  };
  const auto of_k = [&](std::string_view name, const void* at) {
    return tensor(name, at, problem.kv_heads, problem.skv, problem.dqk, problem.k);
  };
  const auto of_v = [&](std::string_view name, const void* at) {
    return tensor(name, at, problem.kv_heads, problem.skv, problem.dv, problem.v);
  };
  const auto of_o = [&](std::string_view name, const void* at) {
    return tensor(name, at, problem.heads, problem.sq, problem.dv, problem.o);
  };
  const auto of_bias = [&](std::string_view name, const void* at, bool is_there) {
    return array(name, at, is_there,
                 is_there ? problem.heads * problem.sq * problem.skv : 0, element);
  };
  const bool has_lengths = attention::is_padded(problem.mask) && !is_packed;
  const bool has_dropout = problem.dropout > 0;
  const std::int64_t rows = problem.batch * problem.heads * problem.sq;
  const Memory q = of_q("q", tensors.q);
  const Memory k = of_k("k", tensors.k);
  const Memory v = of_v("v", tensors.v);
  const Memory o = of_o("o", tensors.o);
  const Memory stats =
      array("stats", tensors.stats, is_backward(problem) || problem.stats, rows, 4);
  const bool has_bias = problem.bias == Bias::kPostScale;
  const Memory bias = only_if(has_bias, "problem.bias is not kPostScale",
                              of_bias("bias", tensors.bias, has_bias));
  const Memory begins_q =
      array("cu_seqlens_q", tensors.cu_seqlens_q, is_packed, problem.batch + 1, 4);
  const Memory begins_kv =
      array("cu_seqlens_kv", tensors.cu_seqlens_kv, is_packed, problem.batch + 1, 4);
  const Memory lengths_q =
      array("lengths_q", tensors.lengths_q, has_lengths, problem.batch, 4);
  const Memory lengths_kv =
      array("lengths_kv", tensors.lengths_kv, has_lengths, problem.batch, 4);
  const Memory seed = array("dropout_seed", tensors.dropout_seed, has_dropout, 1, 8);
  const Memory offset =
      array("dropout_offset", tensors.dropout_offset, has_dropout, 1, 8);
  // All that is given may be written, of which the backward pass needs some.
  const Memory workspace{
      "workspace", tensors.workspace,
      std::max(tensors.workspace == nullptr ? 0 : tensors.workspace_bytes,
               attention_workspace_bytes(problem)),
      sizeof(float)};
  if (!is_backward(problem))
    return check_memory(
        operation_of(problem.pass), {o, stats, workspace},
        {q, k, v, bias, begins_q, begins_kv, lengths_q, lengths_kv, seed, offset});
  return check_memory(
      operation_of(problem.pass),
      {of_q("grad_q", tensors.grad_q), of_k("grad_k", tensors.grad_k),
       of_v("grad_v", tensors.grad_v),
       only_if(problem.bias_gradient, "problem.bias_gradient is false",
               of_bias("grad_bias", tensors.grad_bias, problem.bias_gradient)),
       workspace},
      {q, k, v, o, stats, bias, of_o("grad_o", tensors.grad_o), begins_q, begins_kv,
       lengths_q, lengths_kv, seed, offset});
}

}  // namespace kiln::ops
