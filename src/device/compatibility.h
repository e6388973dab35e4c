// Compatibility rules: whether an image runs on a device and a driver accepts it.
// Source: CUDA Programming Guide, "Compute Capabilities" (binary compatibility, family
// and architecture specific features); CUDA Compatibility guide, "Minor Version
// Compatibility". tests/unit/device holds the same rules once more, as a matrix.

#pragma once

#include <string>

#include "device/architecture.h"
#include "device/cuda_version.h"
#include "kiln/result.h"

namespace kiln::device {

/// Whether the GPU is built into a Tegra chip: 3.2, 5.3, 6.2, 7.2, 8.7, 10.1 and 11.x.
/// Its cubins run on exactly that capability, and no other cubin runs on it.
[[nodiscard]] bool is_integrated(ComputeCapability capability);

/// Whether `f` code for `base` runs on `device`: both are in one family (10.0 and 10.3;
/// 12.0 and 12.1; 10.1 and 11.0 each alone), and the device's minor is not lower.
[[nodiscard]] bool in_family(ComputeCapability base, ComputeCapability device);

/// Cubin without suffix: same major, no lower minor; integrated GPUs: the same
/// capability only. `a`: exactly that capability. `f`: its family. PTX without suffix:
/// any device that is not older; with `a` or `f`: as a cubin. LTO-IR: none.
[[nodiscard]] bool runs_on(Target target, ComputeCapability device);

/// A cubin needs a driver of its toolkit's CUDA major version or later; PTX needs a
/// driver at least as new as its toolkit.
[[nodiscard]] bool accepted_by(CudaVersion driver, ImageKind kind, CudaVersion toolkit);

/// The oldest driver version that accepted_by() accepts.
[[nodiscard]] CudaVersion min_driver(ImageKind kind, CudaVersion toolkit);

/// Part of an error message: "sm_90a code runs on devices of exactly that compute
/// capability, and this one is 10.0"; "" if runs_on().
[[nodiscard]] std::string why_not(Target target, ComputeCapability device);

/// The same for a driver: "PTX built by CUDA 13.0 needs a driver for CUDA 13.0 ...".
[[nodiscard]] std::string why_not(CudaVersion driver, ImageKind kind,
                                  CudaVersion toolkit);

/// accepted_by() as a Result. Errors: kUnavailable, with why_not() and the remedy.
[[nodiscard]] Result<void> check_accepted(CudaVersion driver, ImageKind kind,
                                          CudaVersion toolkit);

}  // namespace kiln::device
