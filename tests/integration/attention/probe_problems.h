// The problems that cuDNN is asked about: each family of problems on each architecture
// for which a device can be described.

#pragma once

#include <string>
#include <vector>

#include "device/device_properties.h"

namespace kiln::test {

/// The first published device of each architecture from 8.0 on, and one of 10.3 that
/// is as a B200 is otherwise.
[[nodiscard]] std::vector<device::DeviceProperties> probed_devices();

struct Family {
  std::string words;  // as tests/support/attention_words.h reads them
  std::vector<std::string> passes;
};
[[nodiscard]] std::vector<Family> probed_families();

}  // namespace kiln::test
