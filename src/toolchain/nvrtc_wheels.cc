#include "toolchain/nvrtc_wheels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <variant>

#include "device/compatibility.h"
#include "device/known_architectures.h"

namespace kiln::device {
namespace {

NvrtcFacts facts_of(CudaVersion version) {
  NvrtcFacts facts{version, {}};
  for (const KnownArchitecture& each : known_architectures()) {
    if (each.first <= version && (!each.last || version <= *each.last))
      facts.architectures.push_back(each.capability);
  }
  return facts;
}

}  // namespace

std::span<const NvrtcWheel> nvrtc_wheels() {
  static constexpr std::array kWheels{
      NvrtcWheel{
          {13, 0}, "nvidia-cuda-nvrtc==13.0.88", "nvidia/cu13/lib/libnvrtc.so.13"},
      NvrtcWheel{{12, 9},
                 "nvidia-cuda-nvrtc-cu12==12.9.86",
                 "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"},
      NvrtcWheel{{12, 4},
                 "nvidia-cuda-nvrtc-cu12==12.4.127",
                 "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"},
  };
  return kWheels;
}

const NvrtcWheel* wheel_for(CudaVersion driver,
                            const std::optional<BuildFor>& build_for) {
  const auto fits = [&](const NvrtcWheel& wheel) {
    ImageKind kind = ImageKind::kCubin;
    if (build_for) {
      const auto target = choose_target(*build_for, {}, facts_of(wheel.version));
      if (!target)
        return false;
      kind = target->kind;
    }
    return accepted_by(driver, kind, wheel.version);
  };
  const auto all = nvrtc_wheels();
  const auto found = std::ranges::find_if(all, fits);
  return found == all.end() ? nullptr : &*found;
}

std::string_view wheel_suffix(CudaVersion version) {
  return version.major == 12 ? "-cu12" : "";
}

std::string header_wheels(CudaVersion version) {
  return fmt::format(
      "nvidia-cuda-runtime{0}, nvidia-cuda-cccl{0} and nvidia-cuda-{1}{0}; for cuRAND "
      "nvidia-curand{0}",
      wheel_suffix(version), version.major == 12 ? "nvcc" : "crt");
}

}  // namespace kiln::device
