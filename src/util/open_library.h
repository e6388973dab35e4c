// Opens shared libraries at run time, for the lifetime of the process.

#pragma once

#include <filesystem>

#include "kiln/result.h"

namespace kiln {

/// The scope of a library's symbols: look-ups in that library only (RTLD_LOCAL), or
/// also libraries that are opened later (RTLD_GLOBAL).
enum class LibrarySymbols { kLocal, kGlobal };

/// Never closed: its code may run until the process ends. Errors: kUnavailable, with
/// the loader's message.
[[nodiscard]] Result<void*> open_library(
    const std::filesystem::path& path, LibrarySymbols symbols = LibrarySymbols::kLocal);

/// nullptr if `library` has no such symbol.
[[nodiscard]] void* find_symbol(void* library, const char* name);

/// Sets `function`; false, and nullptr, if there is no such symbol.
template <typename Function>
bool look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(find_symbol(library, name));
  return function != nullptr;
}

}  // namespace kiln
