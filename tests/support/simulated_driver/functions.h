// Every function of the simulated driver, those that only return an error included: its
// name in programs, its symbol, and the CUDA version that brought it (cudaTypedefs.h).
// A name may have several symbols.

#pragma once

#include <span>
#include <string_view>

namespace kiln::simulated {

struct DriverFunction {
  std::string_view name;
  std::string_view symbol;
  int since = 0;
  void* address = nullptr;
};

[[nodiscard]] std::span<const DriverFunction> driver_functions();

/// True for a name in programs.
[[nodiscard]] bool is_function(std::string_view name);

/// "cuMemAlloc" for "cuMemAlloc_v2".
[[nodiscard]] std::string_view name_of_symbol(std::string_view symbol);

/// A CUresult other than success, as far as the driver has a name for it.
[[nodiscard]] bool is_result(int number);

}  // namespace kiln::simulated
