#include "util/open_library.h"

#include <dlfcn.h>

namespace kiln {

Result<void*> open_library(const std::filesystem::path& path, LibrarySymbols symbols) {
  const int scope = symbols == LibrarySymbols::kLocal ? RTLD_LOCAL : RTLD_GLOBAL;
  if (void* const library = ::dlopen(path.c_str(), RTLD_NOW | scope))
    return library;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): its text is the thread's own in glibc
  const char* const why = ::dlerror();
  return fail(ErrorCode::kUnavailable, why == nullptr ? "unknown reason" : why);
}

void* find_symbol(void* library, const char* name) {
  return ::dlsym(library, name);
}

}  // namespace kiln
