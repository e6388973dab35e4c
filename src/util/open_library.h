// Libraries that are opened at run time, for as long as the process lives.

#pragma once

#include <filesystem>

#include "kiln/result.h"

namespace kiln {

/// Who finds a library's symbols: whoever looks them up in it alone, or every library
/// that is opened after it as well.
enum class LibrarySymbols { kOwn, kForLaterOnes };

/// Never closed: its code may run until the process ends. Errors: kUnavailable, in the
/// loader's own words.
[[nodiscard]] Result<void*> open_library(const std::filesystem::path& path,
                                         LibrarySymbols symbols = LibrarySymbols::kOwn);

/// nullptr where `library` has none of that name.
[[nodiscard]] void* find_symbol(void* library, const char* name);

/// Fills in `function`, and says whether there is one of that name.
template <typename Function>
bool look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(find_symbol(library, name));
  return function != nullptr;
}

}  // namespace kiln
