// Turns a preset's sizes into the argument structs of the operations that a model's
// training calls. Rows are those of one sequence: more rows need no other kernel.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "ops/attention.h"
#include "ops/plans.h"
#include "ops/preset.h"
#include "util/try.h"

namespace kiln::ops {
namespace {

/// Collects the launches of several operations.
class Step {
 public:
  Step(const Preset& preset, const Device& device) : preset_(preset), device_(device) {}

  template <typename Args>
  Result<void> add(const Args& args) {
    auto launches = plan(args, device_);
    if (!launches)
      return fail(launches.error().code,
                  fmt::format("preset {}: {}", preset_.name, launches.error().message));
    std::move(launches->begin(), launches->end(), std::back_inserter(all_));
    return {};
  }

  Launches take() { return std::move(all_); }

 private:
  const Preset& preset_;
  const Device& device_;
  Launches all_;
};

/// The softmax of unfused attention, for every length up to the preset's, which
/// training may begin with: a kernel is for the lengths up to a power of two.
Result<void> add_softmax(const Preset& preset, Step& step) {
  const Preset::Attention& attention = *preset.attention;
  for (std::int64_t length = 1;; length = std::min(2 * length, attention.sequence)) {
    KILN_TRY(step.add(SoftmaxForward{.dtype = preset.dtype,
                                     .heads = attention.heads,
                                     .sq = length,
                                     .skv = length,
                                     .mask = attention.mask}));
    KILN_TRY(step.add(SoftmaxBackward{.dtype = preset.dtype,
                                      .heads = attention.heads,
                                      .sq = length,
                                      .skv = length,
                                      .mask = attention.mask}));
    if (length == attention.sequence)
      return {};
  }
}

/// What frameworks keep in a table: angles, or cosines and sines, in float or in the
/// type of the tensors.
enum class TableKind : std::uint8_t { kAngles, kFloats, kTensorType };

RopeTable rope_table(const Preset& preset, TableKind kind) {
  // Only whether a pointer is null matters, for the table's kind. None is dereferenced.
  static constexpr float kSomewhere = 0;
  RopeTable table{.positions = preset.attention->sequence, .columns = preset.rope->dim};
  if (kind == TableKind::kAngles) {
    table.angles = &kSomewhere;
  } else {
    table.cos = &kSomewhere;
    table.sin = &kSomewhere;
    table.dtype = kind == TableKind::kFloats ? DType::kF32 : preset.dtype;
  }
  return table;
}

RopeTensor rope_tensor(std::int64_t heads, std::int64_t head_dim) {
  const RopeStrides strides{.sequence = heads * head_dim, .head = head_dim};
  return {.heads = heads, .out_strides = strides, .in_strides = strides};
}

Result<void> add_rope(const Preset& preset, Step& step) {
  const Preset::Attention& attention = *preset.attention;
  for (const TableKind kind :
       {TableKind::kAngles, TableKind::kFloats, TableKind::kTensorType}) {
    const RopeArguments args{.dtype = preset.dtype,
                             .style = preset.rope->style,
                             .batch = 1,
                             .sequence = attention.sequence,
                             .head_dim = attention.head_dim,
                             .rotary_dim = preset.rope->dim,
                             .q = rope_tensor(attention.heads, attention.head_dim),
                             .k = rope_tensor(attention.kv_heads, attention.head_dim),
                             .table = rope_table(preset, kind)};
    KILN_TRY(step.add(RopeForward{args}));
    KILN_TRY(step.add(RopeBackward{args}));
  }
  return {};
}

/// The rows of `preset`: the tokens of one sequence, or a common number of them.
std::int64_t tokens_of(const Preset& preset) {
  constexpr std::int64_t kSome = 4096;
  return preset.attention ? preset.attention->sequence : kSome;
}

Result<void> add_layernorm(const Preset& preset, std::int64_t cols, bool residual,
                           Step& step) {
  KILN_TRY(step.add(LayerNormForward{.dtype = preset.dtype,
                                     .weight_dtype = preset.norm->weight_dtype,
                                     .rows = tokens_of(preset),
                                     .cols = cols,
                                     .has_bias = preset.norm->weight,
                                     .adds_residual = residual,
                                     .has_weight = preset.norm->weight}));
  return step.add(LayerNormBackward{.dtype = preset.dtype,
                                    .weight_dtype = preset.norm->weight_dtype,
                                    .rows = tokens_of(preset),
                                    .cols = cols,
                                    .has_bias = preset.norm->weight,
                                    .adds_residual = residual,
                                    .has_weight = preset.norm->weight,
                                    .from_output = preset.norm->from_output});
}

Result<void> add_rmsnorm(const Preset& preset, std::int64_t cols, bool residual,
                         Step& step) {
  const RmsNormCasting casting = *preset.norm->rmsnorm;
  KILN_TRY(step.add(RmsNormForward{.dtype = preset.dtype,
                                   .weight_dtype = preset.norm->weight_dtype,
                                   .rows = tokens_of(preset),
                                   .cols = cols,
                                   .casting = casting,
                                   .adds_residual = residual,
                                   .has_weight = preset.norm->weight}));
  return step.add(RmsNormBackward{.dtype = preset.dtype,
                                  .weight_dtype = preset.norm->weight_dtype,
                                  .rows = tokens_of(preset),
                                  .cols = cols,
                                  .casting = casting,
                                  .adds_residual = residual,
                                  .has_weight = preset.norm->weight,
                                  .from_output = preset.norm->from_output});
}

/// A model's first norm adds no residual, so both variants are needed.
Result<void> add_norms(const Preset& preset, Step& step) {
  for (const std::int64_t cols : preset.norm->lengths) {
    for (const bool residual : {false, true}) {
      if (residual && !preset.norm->residual)
        continue;
      KILN_TRY(preset.norm->rmsnorm ? add_rmsnorm(preset, cols, residual, step)
                                    : add_layernorm(preset, cols, residual, step));
    }
  }
  return {};
}

Result<void> add_plain(const Preset& preset, std::int64_t cols, Step& step) {
  const Preset::Activation& activation = *preset.activation;
  KILN_TRY(step.add(ActivationForward{.dtype = preset.dtype,
                                      .kind = *activation.plain,
                                      .has_bias = activation.bias,
                                      .rows = tokens_of(preset),
                                      .cols = cols}));
  return step.add(ActivationBackward{.dtype = preset.dtype,
                                     .kind = *activation.plain,
                                     .has_bias = activation.bias,
                                     .rows = tokens_of(preset),
                                     .cols = cols});
}

Result<void> add_gated(const Preset& preset, std::int64_t cols, bool weighted,
                       Step& step) {
  // The constants of the clamped kind are kernel arguments: any value will do here.
  const auto with_all = [&]<typename Args>(Args args) {
    args.dtype = preset.dtype;
    args.kind = *preset.activation->gated;
    args.has_bias = preset.activation->bias;
    args.has_weight = weighted;
    args.rows = tokens_of(preset);
    args.cols = cols;
    args.alpha = 1;
    args.limit = 1;
    args.offset = 0;
    return args;
  };
  KILN_TRY(step.add(with_all(GluForward{})));
  return step.add(with_all(GluBackward{}));
}

/// Experts weight their output; layers that all tokens pass through do not.
Result<void> add_activations(const Preset& preset, Step& step) {
  const Preset::Activation& activation = *preset.activation;
  for (const std::int64_t cols : activation.widths) {
    if (activation.plain) {
      KILN_TRY(add_plain(preset, cols, step));
      continue;
    }
    KILN_TRY(add_gated(preset, cols, false, step));
    if (activation.weighted)
      KILN_TRY(add_gated(preset, cols, true, step));
  }
  return {};
}

/// As one fused pass, and as separate forward and backward passes.
Result<void> add_loss(const Preset& preset, Step& step) {
  const std::int64_t rows = tokens_of(preset);
  const std::int64_t vocabulary = *preset.vocabulary;
  KILN_TRY(step.add(
      CrossEntropy{.dtype = preset.dtype, .rows = rows, .vocabulary = vocabulary}));
  KILN_TRY(step.add(CrossEntropyForward{
      .dtype = preset.dtype, .rows = rows, .vocabulary = vocabulary}));
  return step.add(CrossEntropyBackward{
      .dtype = preset.dtype, .rows = rows, .vocabulary = vocabulary});
}

}  // namespace

Result<Launches> launches_of(const Preset& preset, const Device& device) {
  Step step(preset, device);
  if (preset.attention)
    KILN_TRY(add_softmax(preset, step));
  if (preset.rope)
    KILN_TRY(add_rope(preset, step));
  if (preset.norm)
    KILN_TRY(add_norms(preset, step));
  if (preset.activation)
    KILN_TRY(add_activations(preset, step));
  if (preset.vocabulary)
    KILN_TRY(add_loss(preset, step));
  return step.take();
}

Result<std::optional<attention::Problem>> attention_of(const Preset& preset,
                                                       attention::Pass pass) {
  if (!preset.attention)
    return std::nullopt;
  const Preset::Attention& sizes = *preset.attention;
  attention::Problem problem;
  problem.pass = pass;
  problem.training = true;
  problem.stats = true;
  problem.dtype = preset.dtype;
  problem.batch = 1;
  problem.heads = sizes.heads;
  problem.kv_heads = sizes.kv_heads;
  problem.sq = problem.skv = sizes.sequence;
  problem.dqk = sizes.head_dim;
  problem.dv = sizes.value_dim;
  problem.mask = sizes.mask == SoftmaxMask::kCausal  ? attention::Mask::kCausal
                 : sizes.mask == SoftmaxMask::kBytes ? attention::Mask::kPadding
                                                     : attention::Mask::kNone;
  set_strides(problem);
  if (const auto valid = attention::validate(problem); !valid)
    return fail(valid.error().code,
                fmt::format("preset {}: {}", preset.name, valid.error().message));
  return problem;
}

// Up to here the forward kernel keeps fewer rows a block: see kernel_choice.cc.
constexpr std::int64_t kShortSequence = 64;

Result<Launches> attention_launches_of(const Preset& preset, const Device& device) {
  Step step(preset, device);
  for (const auto pass : {attention::Pass::kForward, attention::Pass::kBackward}) {
    auto problem = KILN_TRY(attention_of(preset, pass));
    if (!problem)
      continue;
    KILN_TRY(step.add(AttentionCall{*problem, AttentionTensors{}}));
    problem->sq = problem->skv = std::min(problem->sq, kShortSequence);
    set_strides(*problem);
    KILN_TRY(step.add(AttentionCall{*problem, AttentionTensors{}}));
  }
  return step.take();
}

}  // namespace kiln::ops
