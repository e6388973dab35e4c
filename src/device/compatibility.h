// What fits what: may this image run on that device, does that driver take it.
// Source: CUDA Programming Guide, "Compute Capabilities" (binary compatibility, family
// and architecture specific features); CUDA Compatibility guide, "Minor Version
// Compatibility". tests/unit/device holds the same rules once more, as a matrix.

#pragma once

#include <string>

#include "device/architecture.h"
#include "device/cuda_version.h"
#include "kiln/result.h"

namespace kiln::device {

/// The parts built into a Tegra chip: 3.2, 5.3, 6.2, 7.2, 8.7, 10.1 and 11.x. A cubin
/// of theirs fits no other part and the other way round, whatever the minor says.
[[nodiscard]] bool is_integrated(ComputeCapability capability);

/// True if `f` code of `base` may run on `device`: both in one family (10.0 and 10.3;
/// 12.0 and 12.1; 10.1 and 11.0 alone), the device's minor not lower.
[[nodiscard]] bool in_family(ComputeCapability base, ComputeCapability device);

/// Cubin: no suffix runs on the same major and a minor not lower, integrated parts only
/// on themselves; `a` on exactly that capability; `f` in the family. PTX: no suffix on
/// any device not older; `a` and `f` as a cubin.
[[nodiscard]] bool runs_on(Target target, ComputeCapability device);

/// A cubin needs a driver of its toolkit's CUDA major version or later; PTX needs a
/// driver at least as new as its toolkit.
[[nodiscard]] bool accepted_by(CudaVersion driver, ImageKind kind, CudaVersion toolkit);

/// The oldest driver that accepted_by() says yes to.
[[nodiscard]] CudaVersion min_driver(ImageKind kind, CudaVersion toolkit);

/// One sentence part for an error: "sm_90a code runs on compute capability 9.0 only,
/// and this device is 10.0"; "" where runs_on() is true.
[[nodiscard]] std::string why_not(Target target, ComputeCapability device);

/// As above for the driver: "... needs a driver for CUDA 13.0 or later, found 12.4".
[[nodiscard]] std::string why_not(CudaVersion driver, ImageKind kind,
                                  CudaVersion toolkit);

/// accepted_by() as a Result. Errors: kUnavailable, why_not() and what to do about it.
[[nodiscard]] Result<void> check_accepted(CudaVersion driver, ImageKind kind,
                                          CudaVersion toolkit);

}  // namespace kiln::device
