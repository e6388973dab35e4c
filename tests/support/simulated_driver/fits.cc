#include "tests/support/simulated_driver/fits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace kiln::simulated {
namespace {

struct FamilyRow {
  Capability base;  // of `f` code
  Capability device;
};
constexpr std::array<FamilyRow, 8> kFamilies{{{{10, 0}, {10, 0}},
                                              {{10, 0}, {10, 3}},
                                              {{10, 1}, {10, 1}},
                                              {{10, 3}, {10, 3}},
                                              {{11, 0}, {11, 0}},
                                              {{12, 0}, {12, 0}},
                                              {{12, 0}, {12, 1}},
                                              {{12, 1}, {12, 1}}}};

bool family_code_runs(Capability base, Capability device) {
  return std::any_of(kFamilies.begin(), kFamilies.end(), [&](const FamilyRow& row) {
    return row.base == base && row.device == device;
  });
}

bool plain_cubin_runs(Capability base, Capability device) {
  if (base == device)
    return true;
  return base.major == device.major && base.minor < device.minor && !is_tegra(base) &&
         !is_tegra(device);
}

bool runs(const Image& image, Capability device) {
  switch (image.arch.suffix) {
    case 'a':
      return image.arch.base == device;
    case 'f':
      return family_code_runs(image.arch.base, device);
    default:
      return image.is_ptx ? image.arch.base <= device
                          : plain_cubin_runs(image.arch.base, device);
  }
}

std::string name_of(const Image& image) {
  const Arch& arch = image.arch;
  return fmt::format("{}_{}{}{}", image.is_ptx ? "compute" : "sm", arch.base.major,
                     arch.base.minor,
                     arch.suffix == 0 ? "" : std::string(1, arch.suffix));
}

}  // namespace

bool is_tegra(Capability device) {
  constexpr std::array<Capability, 6> kParts{
      {{3, 2}, {5, 3}, {6, 2}, {7, 2}, {8, 7}, {10, 1}}};
  return device.major == 11 ||
         std::find(kParts.begin(), kParts.end(), device) != kParts.end();
}

std::optional<Refusal> refusal(const Image& image, Capability device,
                               int driver_version, int default_toolkit) {
  if (image.is_ptx && image.toolkit > driver_version)
    return Refusal{CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                   fmt::format("PTX {}.{} is newer than this driver",
                               image.ptx_version / 10, image.ptx_version % 10)};
  const int toolkit = image.toolkit == 0 ? default_toolkit : image.toolkit;
  if (!image.is_ptx && toolkit / 1000 > driver_version / 1000)
    return Refusal{
        CUDA_ERROR_NO_BINARY_FOR_GPU,
        fmt::format("a cubin of CUDA {} is newer than this driver", toolkit / 1000)};
  if (!runs(image, device))
    return Refusal{CUDA_ERROR_NO_BINARY_FOR_GPU,
                   fmt::format("{} code does not run on {}.{}", name_of(image),
                               device.major, device.minor)};
  return std::nullopt;
}

}  // namespace kiln::simulated
