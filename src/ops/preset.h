// Presets: the published sizes of a model, as a small file, and the kernels that its
// training asks for. `kiln warm --preset NAME`; presets/ has those built in.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/device.h"
#include "kiln/ops/activation.h"
#include "kiln/ops/dtype.h"
#include "kiln/ops/norm.h"
#include "kiln/ops/rope.h"
#include "kiln/ops/softmax.h"
#include "kiln/result.h"
#include "ops/plan.h"

namespace kiln::ops {

/// What a file says; a part that it leaves out asks for no kernels.
struct Preset {
  struct Attention {
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t value_dim = 0;  // of value and output; that of the head, if not said
    std::int64_t sequence = 0;
    SoftmaxMask mask = SoftmaxMask::kNone;
  };
  struct Rope {
    RopeStyle style = RopeStyle::kUnset;
    std::int64_t dim = 0;  // of a head, how much is rotated
  };
  struct Norm {
    /// Nothing: LayerNorm.
    std::optional<RmsNormCasting> rmsnorm{};
    DType weight_dtype = DType::kUnset;  // unset: the preset's
    bool residual = false;  // also with the residual added by the same kernel
    std::vector<std::int64_t> lengths;
  };
  struct Activation {
    /// One of the two.
    std::optional<ActivationKind> plain{};
    std::optional<GluKind> gated{};
    bool bias = false;
    bool weighted = false;  // also with a weight for each row, as of an expert's output
    std::vector<std::int64_t> widths;
  };
  std::string name;
  std::string source;  // where the sizes were published, if they were
  DType dtype = DType::kUnset;
  std::optional<Attention> attention{};
  std::optional<Rope> rope{};  // with an attention
  std::optional<Norm> norm{};
  std::optional<Activation> activation{};
  std::optional<std::int64_t> vocabulary{};  // of the cross-entropy
};

/// `file` stands in messages: "<file>:<line>: <what>". Errors: kInvalidArgument, for
/// whatever is unknown, missing or no size.
[[nodiscard]] Result<Preset> parse_preset(std::string_view text, std::string name,
                                          std::string_view file);

/// One built in, by its name; or a file, where `name` has a '/' or ends in ".toml".
/// Errors: kNotFound, with the nearest name and all of them; kInvalidArgument; kIo.
[[nodiscard]] Result<Preset> find_preset(const std::string& name);

struct BuiltInPreset {
  std::string_view name;
  std::string_view text;
};
/// In order of their names.
[[nodiscard]] std::span<const BuiltInPreset> built_in_presets();

/// What one training step of the model launches on `device`, forward and backward: made
/// by the operations themselves, so that a job finds what was warmed. Equal kernels may
/// come several times. Errors: kInvalidArgument, naming preset and operation.
[[nodiscard]] Result<Launches> launches_of(const Preset& preset, const Device& device);

}  // namespace kiln::ops
