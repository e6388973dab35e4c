#include "kiln/device.h"

#include <fmt/format.h>

namespace kiln {

std::string to_string(ComputeCapability capability) {
  return fmt::format("{}.{}", capability.major, capability.minor);
}

}  // namespace kiln
