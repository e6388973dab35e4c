// Calls counted and errors injected, by function. One thread at a time.

#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/simulated_driver/abi.h"

namespace kiln::simulated {

class Faults {
 public:
  /// Counts a call of `function`; what it has to return instead of doing its work, or
  /// CUDA_SUCCESS.
  [[nodiscard]] CUresult count(std::string_view function);

  /// The `nth` call from now on, 0 for every one.
  void inject(std::string_view function, unsigned long nth, CUresult result);

  /// "cuInit=100,cuModuleLoadData:3=2". False if that cannot be read or names a
  /// function that there is not.
  [[nodiscard]] bool parse(std::string_view list);

  void clear();
  [[nodiscard]] unsigned long calls(std::string_view function) const;

 private:
  struct Injected {
    unsigned long call = 0;  // 0: every one
    CUresult result = CUDA_SUCCESS;
  };
  struct Record {
    unsigned long calls = 0;
    std::vector<Injected> injected;
  };
  std::map<std::string, Record, std::less<>> records_;
};

/// True if a context is of no use after such a result: the device's own failures.
[[nodiscard]] bool ends_context(CUresult result);

/// The items of a comma list, none for "".
[[nodiscard]] std::vector<std::string_view> split(std::string_view list);

/// The number that is the whole of `text`; false for anything else.
[[nodiscard]] bool parse_number(std::string_view text, int& number);

}  // namespace kiln::simulated
