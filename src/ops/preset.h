// Presets: small files with the published sizes of a model, and the kernels that its
// training requests. Used by `kiln warm --preset NAME`; presets/ has the built-in ones.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/problem.h"
#include "kiln/device.h"
#include "kiln/ops/activation.h"
#include "kiln/ops/dtype.h"
#include "kiln/ops/norm.h"
#include "kiln/ops/rope.h"
#include "kiln/ops/softmax.h"
#include "kiln/result.h"
#include "ops/plan.h"

namespace kiln::ops {

/// The content of a preset file. A part that is missing requests no kernels.
struct Preset {
  struct Attention {
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t value_dim = 0;  // of value and output; default: head_dim
    std::int64_t sequence = 0;
    SoftmaxMask mask = SoftmaxMask::kNone;
  };
  struct Rope {
    RopeStyle style = RopeStyle::kUnset;
    std::int64_t dim = 0;  // how many elements of a head are rotated
  };
  struct Norm {
    /// nullopt: LayerNorm.
    std::optional<RmsNormCasting> rmsnorm{};
    DType weight_dtype = DType::kUnset;  // kUnset: the preset's
    bool weight = true;                  // false: neither weight nor bias
    bool residual = false;               // also the variant that adds the residual
    bool from_output = false;            // how gradients are computed
    std::vector<std::int64_t> lengths;
  };
  struct Activation {
    /// Exactly one of `plain` and `gated` is set.
    std::optional<ActivationKind> plain{};
    std::optional<GluKind> gated{};
    bool bias = false;
    bool weighted = false;  // also the variant with a weight per row, for experts
    std::vector<std::int64_t> widths;
  };
  std::string name;
  std::string source;   // where the sizes were published, if they were
  std::string missing;  // what the published model has, and Kiln has no kernel for
  DType dtype = DType::kUnset;
  std::optional<Attention> attention{};
  std::optional<Rope> rope{};  // requires `attention`
  std::optional<Norm> norm{};
  std::optional<Activation> activation{};
  std::optional<std::int64_t> vocabulary{};  // of the cross-entropy
};

/// Messages begin with `file`: "<file>:<line>: <what>". Errors: kInvalidArgument, for
/// an entry that is unknown, missing or no valid size.
[[nodiscard]] Result<Preset> parse_preset(std::string_view text, std::string name,
                                          std::string_view file);

/// A built-in preset by its name; or a file, if `name` contains '/' or ends in ".toml".
/// Errors: kNotFound, with all names and the nearest one; kInvalidArgument; kIo.
[[nodiscard]] Result<Preset> find_preset(const std::string& name);

struct BuiltInPreset {
  std::string_view name;
  std::string_view text;
};
/// Sorted by name.
[[nodiscard]] std::span<const BuiltInPreset> built_in_presets();

/// What one training step of the model launches on `device`, forward and backward. The
/// operations' own plans are used, so that a job finds what was warmed. Equal kernels
/// may occur several times. Errors: kInvalidArgument, naming preset and operation.
/// Without the attention of attention_of().
[[nodiscard]] Result<Launches> launches_of(const Preset& preset, const Device& device);

/// The attention of one layer of the model in training, with batch size 1; nullopt: the
/// preset has none. Errors: kInvalidArgument, naming the preset.
[[nodiscard]] Result<std::optional<attention::Problem>> attention_of(
    const Preset& preset, attention::Pass pass);

/// What Kiln's own kernels for both passes launch on `device`, where `preset` has
/// attention: for every batch size and every length, since all above 64 have the same,
/// and so have all others. Errors: as attention_of(); kUnavailable, if no kernel of
/// Kiln supports it.
[[nodiscard]] Result<Launches> attention_launches_of(const Preset& preset,
                                                     const Device& device);

}  // namespace kiln::ops
