// The activations whose kernels run on the CPU.

#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tests/integration/activation/unit.h"
#include "tests/support/kernels/run_plan.h"

namespace kiln::activation_test {

/// One for each forward kernel of the program; its backward kernel is there too.
[[nodiscard]] inline const std::vector<Unit>& all_units() {
  static const auto* const all = [] {
    auto* const units = new std::vector<Unit>;
    for (const kiln_cpu::Variant& kernel : kiln_cpu::kernels_of_program()) {
      const std::string& name = kernel.kernel();
      const auto& params = kernel.params();
      if (kernel.is_forward())
        units->push_back(
            unit_of(name.substr(0, name.size() - 4), params.at("dtype"),
                    params.at("bias") == "true",
                    params.contains("weighted") && params.at("weighted") == "true"));
    }
    return units;
  }();
  return *all;
}

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
[[nodiscard]] inline const Unit& unit(std::string_view name) {
  return *std::ranges::find_if(all_units(),
                               [&](const Unit& each) { return name_of(each) == name; });
}

}  // namespace kiln::activation_test
