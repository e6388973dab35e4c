// Opens shared libraries at run time, for the lifetime of the process.

#pragma once

#include <filesystem>
#include <map>
#include <memory>

#include "kiln/result.h"
#include "util/mutex.h"
#include "util/try.h"

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

/// The functions of libraries as structs of type `Table`, one for each file, kept to
/// the end of the process.
template <typename Table>
class LibraryTables {
 public:
  /// The table of `path`, which `load` makes at the first call: it returns a
  /// Result<std::unique_ptr<Table>>. Thread-safe.
  template <typename Load>
  [[nodiscard]] static Result<const Table*> get(const std::filesystem::path& path,
                                                const Load& load) {
    Known& known = known_tables();
    const MutexLock lock(known.mutex);
    auto& table = known.by_path[path];
    if (table == nullptr)
      table = KILN_TRY(load());
    return table.get();
  }

 private:
  struct Known {
    Mutex mutex;
    std::map<std::filesystem::path, std::unique_ptr<const Table>> by_path
        KILN_GUARDED_BY(mutex);
  };
  static Known& known_tables() {
    // Never destroyed.
    // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
    static auto* const instance = new Known;
    return *instance;
  }
};

}  // namespace kiln
