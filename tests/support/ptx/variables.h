// The memory of a module's variables, as a driver makes it when it loads one.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "tests/support/ptx/interpreter.h"

namespace kiln::ptx {

struct Variables {
  Symbols symbols{};                             // of all of them
  std::vector<std::vector<std::byte>> memory{};  // of those that were made here
  std::vector<Stretch> stretches{};              // where they lie in it
};

/// Room with their initial values for the .global and .const variables that `known` has
/// no address of.
[[nodiscard]] Variables make_variables(const Program& program, Symbols known);

/// Calls visit(variable, at, value) for each address among initial values: of another
/// variable, or of a function. A cubin leaves them to the driver.
using VisitAddress =
    std::function<void(std::string_view variable, std::size_t at, std::uint64_t value)>;
void for_each_initial_address(const Program& program, const Symbols& symbols,
                              const VisitAddress& visit);

/// The one around an address.
[[nodiscard]] std::optional<Stretch> find(const Variables& variables,
                                          std::uint64_t address);

}  // namespace kiln::ptx
