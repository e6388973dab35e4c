// Whether the device code of a file runs on a device: what the driver will choose, and
// the error that the user will meet if it finds nothing. The texts are here alone.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "binaries/device_code.h"
#include "device/cuda_version.h"
#include "kiln/device.h"
#include "util/words.h"

namespace kiln::binaries {

enum class Answer : std::uint8_t {
  kRuns,            // SASS for it
  kCompilesAtLoad,  // only PTX, which the driver compiles
  kFails,           // neither
};

struct Verdict {
  Answer answer = Answer::kRuns;
  std::string reason;
  std::string remedy;  // "" where it runs
};

/// Of a file with device code, on a device and, if it is known, its driver. Where a
/// library has many fat binaries, some may be for other devices on purpose, so it fails
/// only if all do; `reason` says how many do.
[[nodiscard]] Verdict judge(const DeviceCode& code, ComputeCapability device,
                            std::optional<device::CudaVersion> driver);

}  // namespace kiln::binaries

namespace kiln {
template <>
inline constexpr std::array<std::string_view, 3> kWords<binaries::Answer>{
    "runs", "compiles_at_load", "fails"};
}  // namespace kiln
