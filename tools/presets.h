// What the training of a model needs, as `kiln warm --preset` builds it: the kernels of
// its operations, Kiln's attention kernels, and cuDNN's plans where these can be built.

#pragma once

#include <span>

#include "build/build_service.h"
#include "cudnn/plan_service.h"
#include "device/target.h"
#include "kiln/result.h"
#include "ops/preset.h"
#include "tools/architectures.h"
#include "tools/build_run.h"

namespace kiln::tools {

/// Adds the kernels that the presets launch on such a device; with `attention` Kiln's
/// attention kernels, too, or a line on stderr that says why there are none. Errors:
/// kInvalidArgument, naming the preset.
[[nodiscard]] Result<void> add_preset_kernels(BuildService& service,
                                              std::span<const ops::Preset> presets,
                                              bool attention,
                                              const device::BuildFor& build_for,
                                              BuildReport& report);

/// Adds cuDNN's plans for the attention of `preset`, of the batch and the length that
/// the preset has, for each device that a profile describes or that is present. A line
/// on stderr says for which sizes and devices attention is built, by which of the two,
/// and why there are no plans; refusals by a rule are counted. Errors:
/// kInvalidArgument, naming the preset.
[[nodiscard]] Result<void> add_preset_plans(PlanService& plans, const Config& config,
                                            const ops::Preset& preset,
                                            const ArchitectureOptions& devices,
                                            BuildReport& report);

}  // namespace kiln::tools
