// Turns a preset's sizes into the argument structs of the operations that a model's
// training calls. Rows are those of one sequence: more rows need no other kernel.

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
    std::ranges::move(KILN_TRY(about("preset " + preset_.name, plan(args, device_))),
                      std::back_inserter(all_));
    return {};
  }

  /// The same for each of these, in the preset's type, with the fields that `set` sets.
  template <typename Args, typename... Others, typename Set>
  Result<void> add_each(const Set& set) {
    Args args;
    args.dtype = preset_.dtype;
    set(args);
    KILN_TRY(add(args));
    if constexpr (sizeof...(Others) > 0)
      return add_each<Others...>(set);
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
    KILN_TRY((step.add_each<SoftmaxForward, SoftmaxBackward>([&](auto& args) {
      args.heads = attention.heads;
      args.sq = args.skv = length;
      args.mask = attention.mask;
    })));
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
    KILN_TRY((step.add_each<RopeForward, RopeBackward>([&](auto& args) {
      args.style = preset.rope->style;
      args.batch = 1;
      args.sequence = attention.sequence;
      args.head_dim = attention.head_dim;
      args.rotary_dim = preset.rope->dim;
      args.q = rope_tensor(attention.heads, attention.head_dim);
      args.k = rope_tensor(attention.kv_heads, attention.head_dim);
      args.table = rope_table(preset, kind);
    })));
  }
  return {};
}

/// The rows of `preset`: the tokens of one sequence, or a common number of them.
std::int64_t tokens_of(const Preset& preset) {
  constexpr std::int64_t kSome = 4096;
  return preset.attention ? preset.attention->sequence : kSome;
}

template <typename Forward, typename Backward>
Result<void> add_norm(const Preset& preset, std::int64_t cols, bool residual,
                      Step& step) {
  const Preset::Norm& norm = *preset.norm;
  return step.add_each<Forward, Backward>([&](auto& args) {
    args.weight_dtype = norm.weight_dtype;
    args.rows = tokens_of(preset);
    args.cols = cols;
    args.adds_residual = residual;
    args.has_weight = norm.weight;
    if constexpr (requires { args.casting; })
      args.casting = *norm.rmsnorm;
    else
      args.has_bias = norm.weight;
    if constexpr (requires { args.from_output; })
      args.from_output = norm.from_output;
  });
}

/// A model's first norm adds no residual, so both variants are needed.
Result<void> add_norms(const Preset& preset, Step& step) {
  for (const std::int64_t cols : preset.norm->lengths) {
    for (const bool residual : {false, true}) {
      if (residual && !preset.norm->residual)
        continue;
      const auto add = preset.norm->rmsnorm
                           ? add_norm<RmsNormForward, RmsNormBackward>
                           : add_norm<LayerNormForward, LayerNormBackward>;
      KILN_TRY(add(preset, cols, residual, step));
    }
  }
  return {};
}

Result<void> add_plain(const Preset& preset, std::int64_t cols, Step& step) {
  return step.add_each<ActivationForward, ActivationBackward>([&](auto& args) {
    args.kind = *preset.activation->plain;
    args.has_bias = preset.activation->bias;
    args.rows = tokens_of(preset);
    args.cols = cols;
  });
}

Result<void> add_gated(const Preset& preset, std::int64_t cols, bool weighted,
                       Step& step) {
  return step.add_each<GluForward, GluBackward>([&](auto& args) {
    args.kind = *preset.activation->gated;
    args.has_bias = preset.activation->bias;
    args.has_weight = weighted;
    args.rows = tokens_of(preset);
    args.cols = cols;
    // The constants of the clamped kind are kernel arguments: any value will do here.
    args.alpha = args.limit = 1;
    args.offset = 0;
  });
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
  return step.add_each<CrossEntropy, CrossEntropyForward, CrossEntropyBackward>(
      [&](auto& args) {
        args.rows = tokens_of(preset);
        args.vocabulary = *preset.vocabulary;
      });
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
  KILN_TRY(about("preset " + preset.name, attention::validate(problem)));
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
