// The plans of all operations but attention (ops/attention.h): what each checks and
// launches. The headers under kiln/ops/ say what they compute.

#pragma once

#include "kiln/device.h"
#include "kiln/ops/activation.h"
#include "kiln/ops/cross_entropy.h"
#include "kiln/ops/norm.h"
#include "kiln/ops/rope.h"
#include "kiln/ops/softmax.h"
#include "kiln/result.h"
#include "ops/plan.h"

namespace kiln::ops {

// Each returns the launches on `device`. Errors: kInvalidArgument, also if there is a
// workspace and it is too small; none is needed if pointers are ignored.

[[nodiscard]] Result<Launches> plan(const ActivationForward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const ActivationBackward& args,
                                    const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const GluForward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const GluBackward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);

/// One launch: one kernel per data type, for every shape.
[[nodiscard]] Result<Launches> plan(const CrossEntropy& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const CrossEntropyForward& args,
                                    const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const CrossEntropyBackward& args,
                                    const Device& device,
                                    Pointers pointers = Pointers::kIgnored);

[[nodiscard]] Result<Launches> plan(const LayerNormForward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const LayerNormBackward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const RmsNormForward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const RmsNormBackward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);

/// The launches depend on whether the pointers of the table, of starts and of
/// cu_seqlens are null, even if pointers are ignored.
[[nodiscard]] Result<Launches> plan(const RopeForward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const RopeBackward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);

[[nodiscard]] Result<Launches> plan(const SoftmaxForward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const SoftmaxBackward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);

}  // namespace kiln::ops
