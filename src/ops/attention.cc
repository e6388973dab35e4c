#include "ops/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "attention/kernel_choice.h"
#include "ops/attention_arguments.h"
#include "ops/check.h"
#include "ops/strides.h"
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

TensorStrides strides_of(const Problem& problem, const AttentionStrides& strides) {
  const auto& [batch, head, sequence, dim, group] = strides;  // dim is 1
  return {.batch = batch,
          .head = head,
          .group = attention::group_gap(problem, strides),
          .row = sequence};
}

/// The kernels add bounds to positions, as ints. A bound above sq + skv means the same
/// as sq + skv.
std::int32_t bound_of(std::int64_t bound, const Problem& problem) {
  return static_cast<std::int32_t>(std::min(bound, problem.sq + problem.skv));
}

AttentionSizes sizes_of(const AttentionCall& call) {
  const Problem& problem = call.problem;
  // The kernel is chosen, and pointers are passed, by the others.
  const auto& [dtype, batch, heads, kv_heads, sq, skv, dqk, dv, layout, q, k, v, o,
               mask, window_left, window_right, bias_kind, dropout, bias] =
      problem.common();
  const auto narrow = [](std::int64_t size) { return static_cast<std::int32_t>(size); };
  return {.q = strides_of(problem, q),
          .k = strides_of(problem, k),
          .v = strides_of(problem, v),
          .o = strides_of(problem, o),
          .bias = strides_of(problem, attention::bias_strides(problem)),
          .batch = narrow(batch),
          .heads = narrow(heads),
          .kv_heads = narrow(kv_heads),
          .sq = narrow(sq),
          .skv = narrow(skv),
          .tokens_q = packed_rows(call.tensors.tokens_q),
          .tokens_kv = packed_rows(call.tensors.tokens_kv),
          .dqk = narrow(dqk),
          .dv = narrow(dv),
          .left = bound_of(window_left, problem),
          .right = bound_of(attention::right_bound(problem), problem),
          .bottom_right = attention::is_bottom_right(mask) ? 1 : 0,
          .scale = scale_of(call),
          .dropped = static_cast<std::int32_t>(std::lround(dropout * 65536))};
}

/// The kernels' arguments. Each kernel takes its own first, then inputs(), sequences()
/// and dropout().
class CallArguments {
 public:
  explicit CallArguments(const AttentionCall& call)
      : problem_(call.problem),
        given_(call.tensors),
        is_packed_(call.problem.layout == Layout::kThd),
        q_(tensor(problem_.heads, problem_.sq, problem_.dqk, problem_.q)),
        k_(tensor(problem_.kv_heads, problem_.skv, problem_.dqk, problem_.k)),
        v_(tensor(problem_.kv_heads, problem_.skv, problem_.dv, problem_.v)),
        o_(tensor(problem_.heads, problem_.sq, problem_.dv, problem_.o)),
        stats_(floats(problem_.batch * problem_.heads * problem_.sq)),
        bias_(bias()) {}

  /// Only cuDNN uses the workspace of a forward pass: it is checked, but not passed.
  [[nodiscard]] auto forward() const {
    return std::array{writes("o", given_.o, o_),
                      writes("lse", given_.stats, stats_, "stats")
                          .used_if(problem_.stats, "options.stats is false"),
                      workspace().only_checked()};
  }
  [[nodiscard]] auto backward_of_queries() const {
    return std::array{writes("grad_q", given_.grad_q, q_), workspace(),
                      reads("grad_o", given_.grad_o, o_), reads("o", given_.o, o_),
                      reads("lse", given_.stats, stats_, "stats")};
  }
  [[nodiscard]] auto backward_of_keys() const {
    return std::array{writes("grad_k", given_.grad_k, k_),
                      writes("grad_v", given_.grad_v, v_),
                      value("delta", given_.workspace), value("grad_o", given_.grad_o),
                      value("lse", given_.stats)};
  }
  [[nodiscard]] auto backward_of_bias() const {
    return std::array{
        writes("grad_bias", given_.grad_bias, bias_)
            .used_if(problem_.bias_gradient, "options.bias_gradient is false"),
        value("delta", given_.workspace), value("grad_o", given_.grad_o),
        value("lse", given_.stats)};
  }
  /// What the launch behind cuDNN's plan takes, besides sequences(). It is checked with
  /// the others.
  [[nodiscard]] auto of_empty_sequences() const {
    return std::array{value("o", given_.o), value("lse", given_.stats)};
  }
  [[nodiscard]] auto gradients_of_empty_sequences() const {
    return std::array{value("grad_q", given_.grad_q), value("grad_k", given_.grad_k),
                      value("grad_v", given_.grad_v)};
  }
  [[nodiscard]] auto inputs() const {
    return std::array{reads("q", given_.q, q_), reads("k", given_.k, k_),
                      reads("v", given_.v, v_),
                      reads("bias_values", given_.bias, bias_, "bias")
                          .used_if(attention::has_bias_tensor(problem_),
                                   "problem.bias_kind is neither kPostScale nor "
                                   "kBoolean")};
  }
  [[nodiscard]] auto sequences() const {
    constexpr std::string_view kNotPacked = "problem.layout is not kThd";
    constexpr std::string_view kNotPadded = "problem.mask has no padding";
    const bool is_padded = attention::is_padded(problem_.mask);
    const Elements begins{problem_.batch + 1, sizeof(std::int32_t)};
    const Elements lengths{is_packed_ ? 0 : problem_.batch, sizeof(std::int32_t)};
    return std::array{reads("q_begins", given_.cu_seqlens_q, begins, "cu_seqlens_q")
                          .used_if(is_packed_, kNotPacked),
                      reads("kv_begins", given_.cu_seqlens_kv, begins, "cu_seqlens_kv")
                          .used_if(is_packed_, kNotPacked),
                      reads("q_lengths", given_.lengths_q, lengths, "lengths_q")
                          .used_if(is_padded, kNotPadded),
                      reads("kv_lengths", given_.lengths_kv, lengths, "lengths_kv")
                          .used_if(is_padded, kNotPadded)};
  }
  [[nodiscard]] auto dropout() const {
    constexpr std::string_view kNoDropout = "problem.dropout is 0";
    const bool drops = problem_.dropout > 0;
    const Elements number{1, sizeof(std::int64_t)};
    return std::array{reads("seed", given_.dropout_seed, number, "dropout_seed")
                          .used_if(drops, kNoDropout),
                      reads("offset", given_.dropout_offset, number, "dropout_offset")
                          .used_if(drops, kNoDropout)};
  }

 private:
  /// The elements that the tensor surely covers: all if it is contiguous, else its
  /// first row, because the gaps may hold another tensor. Of a packed tensor one token,
  /// because the host does not know their number.
  [[nodiscard]] Elements tensor(std::int64_t heads, std::int64_t rows, std::int64_t dim,
                                const AttentionStrides& strides) const {
    const std::int64_t batch = is_packed_ ? 1 : problem_.batch;
    rows = is_packed_ ? 1 : rows;
    const std::int64_t elements = batch * heads * rows * dim;
    const std::int64_t last =
        (batch - 1) * strides.batch + (heads - 1) * strides.head +
        (problem_.kv_heads - 1) * attention::group_gap(problem_, strides) +
        (rows - 1) * strides.sequence + dim - 1;
    return {last < elements ? last + 1 : dim, size_bytes(problem_.dtype)};
  }
  [[nodiscard]] Elements bias() const {
    const std::size_t bytes = problem_.bias_kind == Bias::kBoolean ? 1 : q_.bytes;
    if (!attention::has_bias_tensor(problem_))
      return {0, bytes};
    const AttentionStrides by = attention::bias_strides(problem_);
    const attention::BiasSizes of = attention::bias_sizes(problem_);
    const std::int64_t elements = of.batches * of.heads * of.rows * problem_.skv;
    const std::int64_t last = (of.batches - 1) * by.batch + (of.heads - 1) * by.head +
                              (of.rows - 1) * by.sequence + problem_.skv - 1;
    return {last < elements ? last + 1 : problem_.skv, bytes};
  }
  /// The whole workspace that is given may be written. The backward pass needs some of
  /// it.
  [[nodiscard]] Argument workspace() const {
    const std::uint64_t needed = attention_workspace_bytes(problem_);
    const bool is_given = given_.workspace != nullptr && given_.workspace_bytes > 0;
    return ops::workspace("delta", given_.workspace,
                          std::max(given_.workspace_bytes, needed),
                          is_given || needed > 0);
  }

  const Problem& problem_;
  const AttentionTensors& given_;
  const bool is_packed_;
  const Elements q_;
  const Elements k_;
  const Elements v_;
  const Elements o_;
  const Elements stats_;
  const Elements bias_;
};

Arguments with_sizes(const AttentionCall& call, ArgumentLists lists) {
  Arguments all(lists);
  all.add("all", sizes_of(call));
  return all;
}

Launch forward(const AttentionCall& call, attention::KernelChoice choice) {
  const Problem& problem = call.problem;
  const CallArguments given(call);
  return {.kernel = std::move(choice.kernel),
          .parameters = std::move(choice.parameters),
          .extents = {{"batch", problem.batch},
                      {"heads", problem.heads},
                      {"sq", problem.sq}},
          .arguments = with_sizes(call, {given.forward(), given.inputs(),
                                         given.sequences(), given.dropout()})};
}

/// dq and delta, then dk and dv.
Launches backward(const AttentionCall& call, const attention::KernelChoice& choice) {
  const Problem& problem = call.problem;
  const CallArguments given(call);
  const auto inputs = given.inputs();
  const auto sequences = given.sequences();
  const auto dropout = given.dropout();
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
  of_queries.arguments =
      with_sizes(call, {given.backward_of_queries(), inputs, sequences, dropout});
  of_keys.arguments =
      with_sizes(call, {given.backward_of_keys(), inputs, sequences, dropout});
  Launches all = just(std::move(of_queries));
  all.push_back(std::move(of_keys));
  return all;
}

Launch bias_backward(const AttentionCall& call, attention::KernelChoice choice) {
  const Problem& problem = call.problem;
  const CallArguments given(call);
  const attention::BiasSizes of = attention::bias_sizes(problem);
  Launch launch{.kernel = std::move(choice.kernel),
                .parameters = std::move(choice.parameters),
                .extents = {{"bias_batches", of.batches},
                            {"bias_heads", of.heads},
                            {"sq", problem.sq}},
                .arguments = with_sizes(call, {given.backward_of_bias(), given.inputs(),
                                               given.sequences(), given.dropout()})};
  launch.arguments.add("bias_batches", static_cast<std::int32_t>(of.batches));
  launch.arguments.add("bias_heads", static_cast<std::int32_t>(of.heads));
  return launch;
}

/// Each block writes rows of its own, so no two rows may share memory.
Result<void> check_written(const Problem& problem) {
  if (problem.o == AttentionStrides{} && problem.dv > 1)
    return refuse(
        "the strides of o are not set: call set_strides() once the sizes are");
  const bool is_packed = problem.layout == Layout::kThd;
  const auto check = [&](std::string_view name, const AttentionStrides& strides,
                         std::int64_t heads, std::int64_t rows, std::int64_t dim) {
    // The number of packed tokens is known only on the device.
    const std::int64_t groups = strides.group == 0 ? 1 : problem.kv_heads;
    const std::array dimensions{
        Dimension{"dim", dim, strides.dim},
        Dimension{"head", heads / groups, strides.head},
        Dimension{"group", groups, strides.group},
        Dimension{"sequence", is_packed ? 2 : rows, strides.sequence},
        Dimension{"batch", is_packed ? 1 : problem.batch, strides.batch}};
    Result<void> are_apart = check_apart(name, dimensions);
    if (!are_apart)
      are_apart.error().message += "; if heads share a key or value, set kv_heads";
    return are_apart;
  };
  if (!is_backward(problem))
    return check("o", problem.o, problem.heads, problem.sq, problem.dv);
  if (problem.bias_gradient) {
    const AttentionStrides by = attention::bias_strides(problem);
    const attention::BiasSizes of = attention::bias_sizes(problem);
    const std::array dimensions{Dimension{"dim", problem.skv, by.dim},
                                Dimension{"sequence", of.rows, by.sequence},
                                Dimension{"head", of.heads, by.head},
                                Dimension{"batch", of.batches, by.batch}};
    KILN_TRY(check_apart("grad_bias", dimensions));
  }
  KILN_TRY(check("grad_q", problem.q, problem.heads, problem.sq, problem.dqk));
  KILN_TRY(check("grad_k", problem.k, problem.kv_heads, problem.skv, problem.dqk));
  return check("grad_v", problem.v, problem.kv_heads, problem.skv, problem.dv);
}

}  // namespace

std::string_view operation_of(Pass pass) {
  return pass == Pass::kBackward ? "attention_backward" : "attention_forward";
}

std::int32_t packed_rows(std::int64_t tokens) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  return static_cast<std::int32_t>(tokens == 0 ? kMost : std::min(tokens, kMost));
}

float scale_of(const AttentionCall& call) {
  return call.tensors.scale.value_or(
      static_cast<float>(1 / std::sqrt(static_cast<double>(call.problem.dqk))));
}

attention::CallProperties properties_of(const AttentionCall& call) {
  const AttentionTensors& tensors = call.tensors;
  const Problem& problem = call.problem;
  const auto are = [](std::initializer_list<const void*> all) {
    return std::ranges::all_of(all, [](const void* at) {
      return reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
    });
  };
  const auto if_there = [](bool is_there, const void* at) {
    return is_there ? at : nullptr;
  };
  const bool is_aligned =
      are({tensors.q, tensors.k, tensors.v, tensors.o}) &&
      (!is_backward(problem) ||
       are({tensors.grad_o, tensors.grad_q, tensors.grad_k, tensors.grad_v}));
  return {.is_aligned = is_aligned,
          .is_aligned_for_cudnn =
              is_aligned &&
              are({if_there(problem.stats, tensors.stats),
                   if_there(problem.bias_kind == Bias::kPostScale, tensors.bias),
                   if_there(problem.bias_gradient, tensors.grad_bias)}),
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
    return valid;
  KILN_TRY(check_written(problem));
  if (const float scale = scale_of(call); !std::isfinite(scale))
    return refuse("scale is {}", scale);
  for (const auto& [name, tokens] : {std::pair{"tokens_q", call.tensors.tokens_q},
                                     {"tokens_kv", call.tensors.tokens_kv}})
    if (tokens < 0)
      return refuse("{} is {}", name, tokens);
  return {};
}

Result<Launches> launches(const AttentionCall& call, const Device& device) {
  const Problem& problem = call.problem;
  KILN_TRY(check_workspace(call.tensors.workspace, call.tensors.workspace_bytes,
                           attention_workspace_bytes(problem)));
  attention::KernelChoice choice = KILN_TRY(
      attention::choose_kernel(problem, device.capability, properties_of(call)));
  Launches all = is_backward(problem) ? backward(call, choice)
                                      : just(forward(call, std::move(choice)));
  if (problem.layout == Layout::kThd)
    std::ranges::move(empty_sequence_launches(call), std::back_inserter(all));
  if (problem.bias_gradient)
    all.push_back(bias_backward(
        call, KILN_TRY(attention::choose_bias_kernel(problem, device.capability))));
  return all;
}

Launches empty_sequence_launches(const AttentionCall& call) {
  const Problem& problem = call.problem;
  if (problem.layout != Layout::kThd && !attention::is_padded(problem.mask))
    return {};
  const CallArguments given(call);
  const bool backward = is_backward(problem);
  return just(
      {.kernel = backward ? "attention_empty_bwd" : "attention_empty_fwd",
       .parameters = {{"dtype", std::string(to_string(problem.dtype))}},
       .extents = {{"batch", problem.batch}, {"heads", problem.heads}},
       .arguments = backward ? with_sizes(call, {given.gradients_of_empty_sequences(),
                                                 given.sequences()})
                             : with_sizes(call, {given.of_empty_sequences(),
                                                 given.sequences()})});
}

Result<Launches> plan(const AttentionCall& call, const Device& device,
                      Pointers pointers) {
  const std::string_view operation = operation_of(call.problem.pass);
  KILN_TRY(named(operation, check_options(call)));
  Launches all = KILN_TRY(named(operation, launches(call, device)));
  if (pointers.are_checked())
    KILN_TRY(named(operation, check_pointers(call)));
  return all;
}

Result<void> check_pointers(const AttentionCall& call) {
  const CallArguments given(call);
  if (!is_backward(call.problem))
    return check_memory(
        {given.forward(), given.inputs(), given.sequences(), given.dropout()},
        Pointers::kChecked);
  return check_memory(
      {given.inputs(), given.sequences(), given.dropout(), given.backward_of_queries(),
       given.backward_of_keys(), given.backward_of_bias()},
      Pointers::kChecked);
}

}  // namespace kiln::ops
