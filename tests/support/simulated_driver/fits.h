// The simulated driver's own table of what runs where: which image a device takes and
// which a driver takes. Written apart from Kiln's, and never to be shared with it.
// Source: CUDA Programming Guide, "Compute Capabilities"; CUDA Compatibility guide.

#pragma once

#include <optional>

#include "tests/support/simulated_driver/image.h"

namespace kiln::simulated {

/// Why this driver does not put `image` on `device`; nullopt where it does.
/// `driver_version` is in CUDA's encoding. A cubin that does not name its toolkit is
/// taken to be of `default_toolkit`.
[[nodiscard]] std::optional<Refusal> refusal(const Image& image, Capability device,
                                             int driver_version, int default_toolkit);

/// The parts built into a Tegra chip.
[[nodiscard]] bool is_tegra(Capability device);

}  // namespace kiln::simulated
