// The activations whose kernels are compiled for the CPU.

#pragma once

#include <string_view>
#include <vector>

#include "tests/integration/activation/unit.h"

namespace kiln::activation_test {

/// One for each forward kernel of the program; its backward kernel is there too.
[[nodiscard]] const std::vector<Unit>& all_units();
template <typename Predicate>
std::vector<Unit> units_where(Predicate predicate) {
  std::vector<Unit> some;
  for (const Unit& unit : all_units()) {
    if (predicate(unit))
      some.push_back(unit);
  }
  return some;
}
/// The one of that name, type and options. It is there.
[[nodiscard]] const Unit& unit(std::string_view name);

}  // namespace kiln::activation_test
