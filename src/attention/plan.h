// A cuDNN execution plan as it is stored: cuDNN's own JSON, which contains the compiled
// kernels, and all else that a run needs, so that the graph is not needed any more.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attention/cudnn_version.h"
#include "device/architecture.h"
#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln::attention {

/// The tensors that a caller passes. Each value is the tensor's unique id in every
/// graph that Kiln makes; the frontend numbers its own tensors from 1. Shapes: q
/// [batch, heads, sq, dqk], k, v and o alike.
enum class TensorRole : std::uint16_t {
  kQ = 1001,
  kK,
  kV,
  kO,
  kStats,      // log-sum-exp, [batch, heads, sq, 1] in float, contiguous
  kBias,       // [1, heads, sq, skv], contiguous, of the problem's type
  kLengthsQ,   // [batch] int32: true lengths, for masks with padding
  kLengthsKv,  // [batch] int32
  kOffsetsQ,   // [batch + 1] int32, in elements of q; thd only. The next 3: alike
  kOffsetsK,
  kOffsetsV,
  kOffsetsO,
  kDropoutSeed,    // one int64
  kDropoutOffset,  // one int64
  kScale,          // one float in *host* memory: what Q K^T is multiplied by
  kGradO,
  kGradQ,
  kGradK,
  kGradV,
  kGradBias,
};
inline constexpr TensorRole kLastTensorRole = TensorRole::kGradBias;

/// "q", "stats", "grad_q", as in messages.
[[nodiscard]] std::string_view to_string(TensorRole role);

/// A constant of the graph, handed to cuDNN by address at every run.
struct PlanScalar {
  std::int64_t uid = 0;
  std::string value;  // its bytes, in the type that the graph gives it
  friend bool operator==(const PlanScalar&, const PlanScalar&) = default;
};

/// A tensor in the workspace, and its initial content for a run.
struct WorkspaceTensor {
  std::int64_t uid = 0;
  std::uint64_t offset = 0;      // in bytes, from the beginning of the workspace
  std::uint64_t zero_bytes = 0;  // set to zero
  std::vector<float> values{};   // copied there
  friend bool operator==(const WorkspaceTensor&, const WorkspaceTensor&) = default;
};

/// A kernel in the JSON. cuDNN does not detect damage in it, so the loader of a plan
/// must check it.
struct PlanKernel {
  std::string name;
  std::uint64_t cubin_offset = 0;  // of the first character of the base64 text
  std::uint64_t cubin_chars = 0;
  friend bool operator==(const PlanKernel&, const PlanKernel&) = default;
};

/// A property of the device that cuDNN compares when it loads a plan; see
/// plan_binding.h. An array has several values.
struct BoundProperty {
  std::string name;
  std::vector<std::int64_t> values;
  friend bool operator==(const BoundProperty&, const BoundProperty&) = default;
};

/// Thread safety: a value.
struct Plan {
  CudnnVersion cudnn;
  std::string engine;                // "engine 2, KERNEL_CFG=7"
  std::vector<BoundProperty> bound;  // in the order of binding_of()
  std::vector<TensorRole> tensors;   // required by every run; ascending
  std::vector<PlanScalar> scalars;
  std::vector<WorkspaceTensor> workspace;
  /// The workspace: `graph_workspace_bytes` for the tensors above, then the engine's
  /// own.
  std::uint64_t graph_workspace_bytes = 0;
  std::uint64_t engine_workspace_bytes = 0;
  std::vector<PlanKernel> kernels;
  std::string json;  // as cuDNN wrote it
  friend bool operator==(const Plan&, const Plan&) = default;

  [[nodiscard]] std::uint64_t workspace_bytes() const {
    return graph_workspace_bytes + engine_workspace_bytes;
  }
};

/// The payload of a stored object: a list of fields, the JSON last.
[[nodiscard]] Bytes encode(const Plan& plan);
/// Errors: kCorrupt, naming the field. Memory use is bounded by the size of `bytes`.
[[nodiscard]] Result<Plan> decode_plan(ByteView bytes);

/// Sets `engine` and `kernels`, in the JSON's order, from the plan's JSON. Errors:
/// kCorrupt.
[[nodiscard]] Result<void> read_json(Plan& plan);

/// The compute capability that the plan is bound to. Errors: kCorrupt, if there is
/// none.
[[nodiscard]] Result<device::ComputeCapability> bound_capability(const Plan& plan);

/// Checks what cuDNN would not detect: every kernel is a complete ELF file for the
/// bound deviceVer. Cheap enough for every load: no JSON is parsed. Errors: kCorrupt.
[[nodiscard]] Result<void> check_kernels(const Plan& plan);

/// Like check_kernels(), and checks that version, properties and kernels are those in
/// the JSON. For new plans and `kiln verify`. Errors: kCorrupt.
[[nodiscard]] Result<void> check_fully(const Plan& plan);

}  // namespace kiln::attention
