// What the environment and the tests ask the simulated driver to be.

#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tests/support/simulated_driver/computing.h"
#include "tests/support/simulated_driver/image.h"

namespace kiln::simulated {

class Faults;

struct Settings {
  std::optional<std::vector<Capability>> devices;  // not set: the environment's
  int driver_version = 13000;
  int toolkit_version = 0;  // 0: the driver's
  bool is_eager = false;
  Computing computing{};
  bool is_broken = false;  // something in the environment could not be read

  [[nodiscard]] int default_toolkit() const {
    return toolkit_version == 0 ? driver_version : toolkit_version;
  }
};

/// From the environment, all but the devices; its faults go to `faults`. What cannot be
/// read is said on stderr, and is_broken is set.
[[nodiscard]] Settings read_settings(Faults& faults);

/// From the environment, 9.0 where it says nothing. nullopt after a line on stderr.
[[nodiscard]] std::optional<std::vector<Capability>> read_devices();

/// "7.5,8.6"; nullopt for anything else.
[[nodiscard]] std::optional<std::vector<Capability>> parse_devices(
    std::string_view list);

/// True for a number such as 12040.
[[nodiscard]] bool is_version(int number);

/// "eager" is true, "lazy" false.
[[nodiscard]] std::optional<bool> parse_loading(std::string_view mode);

}  // namespace kiln::simulated
