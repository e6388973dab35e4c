// The options that a program hands over with an image: only the logs do anything.

#pragma once

#include <string_view>

#include "tests/support/simulated_driver/abi.h"

namespace kiln::simulated {

struct JitOptions {
  const CUjit_option* names = nullptr;
  void** values = nullptr;
  unsigned count = 0;

  /// False where an option is unknown or the arrays are missing.
  [[nodiscard]] bool is_valid() const;
  /// Into the error log, if there is one, cut off where it is full; the option with its
  /// size gets what was written.
  void report(std::string_view text) const;
};

}  // namespace kiln::simulated
