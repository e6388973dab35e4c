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

Result<Plan> plan(const AttentionCall& call, const Device& device, Pointers pointers) {
  KILN_TRY(check_options(call));
  Plan all = KILN_TRY(launches(call, device));
  if (pointers == Pointers::kChecked)
    KILN_TRY(check_pointers(call));
  return all;
}

namespace {

/// The tensors of a call as the memory that it touches.
class CallMemory {
 public:
  explicit CallMemory(const AttentionCall& call)
      : problem_(call.problem),
        is_packed_(call.problem.layout == Layout::kThd),
        one_token_(call.problem) {
    if (is_packed_)  // how many tokens a packed tensor has is on the device
      one_token_.batch = 1;
  }

  [[nodiscard]] Memory like_q(std::string_view name, const void* at) const {
    return tensor(name, at, {problem_.heads, problem_.sq, problem_.dqk}, problem_.q);
  }
  [[nodiscard]] Memory like_k(std::string_view name, const void* at) const {
    return tensor(name, at, {problem_.kv_heads, problem_.skv, problem_.dqk},
                  problem_.k);
  }
  [[nodiscard]] Memory like_v(std::string_view name, const void* at) const {
    return tensor(name, at, {problem_.kv_heads, problem_.skv, problem_.dv}, problem_.v);
  }
  [[nodiscard]] Memory like_o(std::string_view name, const void* at) const {
    return tensor(name, at, {problem_.heads, problem_.sq, problem_.dv}, problem_.o);
  }
  /// Refused where the problem has none.
  [[nodiscard]] Memory bias(std::string_view name, const void* at, bool is_there,
                            std::string_view else_because) const {
    const std::int64_t count =
        is_there ? problem_.heads * problem_.sq * problem_.skv : 0;
    return only_if(is_there, else_because,
                   array(name, at, true, count, size_bytes(problem_.dtype)));
  }
  [[nodiscard]] Memory stats(const float* at) const {
    return array("stats", at, is_backward(problem_) || problem_.stats,
                 problem_.batch * problem_.heads * problem_.sq, sizeof(float));
  }
  [[nodiscard]] Memory begins(std::string_view name, const std::int32_t* at) const {
    return array(name, at, is_packed_, problem_.batch + 1, sizeof(std::int32_t));
  }
  [[nodiscard]] Memory lengths(std::string_view name, const std::int32_t* at) const {
    return array(name, at, attention::is_padded(problem_.mask) && !is_packed_,
                 problem_.batch, sizeof(std::int32_t));
  }
  [[nodiscard]] Memory dropout(std::string_view name, const std::int64_t* at) const {
    return array(name, at, problem_.dropout > 0, 1, sizeof(std::int64_t));
  }
  /// All that is given may be written, of which the backward pass needs some.
  [[nodiscard]] Memory workspace(const AttentionTensors& tensors) const {
    return {"workspace", tensors.workspace,
            std::max(tensors.workspace == nullptr ? 0 : tensors.workspace_bytes,
                     attention_workspace_bytes(problem_)),
            sizeof(float)};
  }

 private:
  struct Extents {
    std::int64_t heads;
    std::int64_t rows;
    std::int64_t dim;
  };
  [[nodiscard]] Memory tensor(std::string_view name, const void* at,
                              const Extents& extents,
                              const attention::Strides& strides) const {
    return {name, at,
            bytes_of(one_token_, extents.heads, is_packed_ ? 1 : extents.rows,
                     extents.dim, strides),
            size_bytes(problem_.dtype)};
  }
  /// Not looked at where it is not there.
  [[nodiscard]] static Memory array(std::string_view name, const void* at,
                                    bool is_there, std::int64_t count,
                                    std::size_t size) {
    return {name, at, is_there ? static_cast<std::uint64_t>(count) * size : 0, size};
  }

  const Problem& problem_;
  const bool is_packed_;
  Problem one_token_;
};

}  // namespace

Result<void> check_pointers(const AttentionCall& call) {
  const AttentionTensors& given = call.tensors;
  const CallMemory memory(call);
  const Memory q = memory.like_q("q", given.q);
  const Memory k = memory.like_k("k", given.k);
  const Memory v = memory.like_v("v", given.v);
  const Memory o = memory.like_o("o", given.o);
  const Memory stats = memory.stats(given.stats);
  const Memory bias =
      memory.bias("bias", given.bias, call.problem.bias == Bias::kPostScale,
                  "problem.bias is not kPostScale");
  const Memory begins_q = memory.begins("cu_seqlens_q", given.cu_seqlens_q);
  const Memory begins_kv = memory.begins("cu_seqlens_kv", given.cu_seqlens_kv);
  const Memory lengths_q = memory.lengths("lengths_q", given.lengths_q);
  const Memory lengths_kv = memory.lengths("lengths_kv", given.lengths_kv);
  const Memory seed = memory.dropout("dropout_seed", given.dropout_seed);
  const Memory offset = memory.dropout("dropout_offset", given.dropout_offset);
  const Memory workspace = memory.workspace(given);
  const std::string_view operation = operation_of(call.problem.pass);
  if (!is_backward(call.problem))
    return check_memory(
        operation, {o, stats, workspace},
        {q, k, v, bias, begins_q, begins_kv, lengths_q, lengths_kv, seed, offset});
  return check_memory(
      operation,
      {memory.like_q("grad_q", given.grad_q), memory.like_k("grad_k", given.grad_k),
       memory.like_v("grad_v", given.grad_v),
       memory.bias("grad_bias", given.grad_bias, call.problem.bias_gradient,
                   "problem.bias_gradient is false"),
       workspace},
      {q, k, v, o, stats, bias, memory.like_o("grad_o", given.grad_o), begins_q,
       begins_kv, lengths_q, lengths_kv, seed, offset});
}

}  // namespace kiln::ops
