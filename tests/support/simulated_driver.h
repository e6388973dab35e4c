// A simulated driver of a test's own: a copy of libkiln-simulated-driver.so that nobody
// else has opened, and its remote control. Link kiln_simulated_driver_control.

#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/own_library.h"
#include "tests/support/paths.h"
#include "tests/support/simulated_driver/simulated_driver.h"

namespace kiln::test {

class SimulatedDriver : public OwnLibrary {
 public:
  /// With devices of these capabilities, "7.5,9.0", "" for none. What else the
  /// environment says holds; it is read now.
  explicit SimulatedDriver(const std::string& devices = "9.0")
      : OwnLibrary(paths::kSimulatedDriver) {
    EXPECT_EQ(control<decltype(kiln_simulated_set_devices)>(
                  "kiln_simulated_set_devices")(devices.c_str()),
              0);
  }

// NOLINTBEGIN(bugprone-macro-parentheses): names
#define KILN_CONTROL(name)                                                    \
  template <typename... Arguments>                                            \
  auto name(Arguments... arguments) const {                                   \
    return control<decltype(kiln_simulated_##name)>("kiln_simulated_" #name)( \
        arguments...);                                                        \
  }
  // As in simulated_driver/simulated_driver.h, without the prefix.
  KILN_CONTROL(reset)
  KILN_CONTROL(set_devices)
  KILN_CONTROL(set_driver_version)
  KILN_CONTROL(set_toolkit_version)
  KILN_CONTROL(set_loading)
  KILN_CONTROL(clear_faults)
  KILN_CONTROL(remove)
  KILN_CONTROL(lose_context)
  KILN_CONTROL(deinitialize)
  KILN_CONTROL(calls)
  KILN_CONTROL(loads)
  KILN_CONTROL(loads_on)
  KILN_CONTROL(last_image)
  KILN_CONTROL(alive)
  KILN_CONTROL(register_kernel)
  KILN_CONTROL(register_any_kernel)
#undef KILN_CONTROL
  // NOLINTEND(bugprone-macro-parentheses)

  // By its own types: a literal `nth` would be an int of the wrong sign.
  int inject(const char* function, unsigned long nth, int result) const {
    return control<decltype(kiln_simulated_inject)>("kiln_simulated_inject")(
        function, nth, result);
  }

  /// Every launch so far, in order.
  [[nodiscard]] std::vector<kiln_simulated_launch> launches() const {
    const auto ask =
        control<decltype(kiln_simulated_launches)>("kiln_simulated_launches");
    std::vector<kiln_simulated_launch> all(ask(nullptr, 0));
    ask(all.data(), all.size());  // those that came meanwhile are not asked for
    return all;
  }
};

}  // namespace kiln::test
