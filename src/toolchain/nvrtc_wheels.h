// The NVRTCs that NVIDIA publishes as Python wheels, for messages that say what to
// install. tools/wheels.txt has the same versions, and a test compares the two.

#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "device/cuda_version.h"
#include "device/target.h"

namespace kiln::device {

struct NvrtcWheel {
  CudaVersion version;
  std::string_view requirement;  // as pip takes it
  std::string_view library;      // below the folder of `pip install --target`
};

/// Newest first.
[[nodiscard]] std::span<const NvrtcWheel> nvrtc_wheels();

/// The newest that builds for `build_for` (none: whatever it is) what `driver` takes;
/// null if none does.
[[nodiscard]] const NvrtcWheel* wheel_for(CudaVersion driver,
                                          const std::optional<BuildFor>& build_for);

/// "-cu12" of the names of wheels for CUDA 12, "" of later ones.
[[nodiscard]] std::string_view wheel_suffix(CudaVersion version);

/// "nvidia-cuda-runtime, nvidia-cuda-cccl and nvidia-cuda-crt": the wheels that have
/// the headers for an NVRTC of this version.
[[nodiscard]] std::string header_wheels(CudaVersion version);

}  // namespace kiln::device
