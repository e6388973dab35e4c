#include "util/this_library.h"

#include <dlfcn.h>

#include <system_error>

namespace kiln {

std::filesystem::path this_program() {
  std::error_code no_proc;  // on error: an empty path
  return std::filesystem::read_symlink("/proc/self/exe", no_proc);
}

std::filesystem::path this_library() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&this_library), &info) == 0 ||
      info.dli_fname == nullptr)
    return this_program();
  // The loader reports the program's own name as it was typed. Resolve links, so that
  // files beside the real file are found.
  std::error_code unresolved;
  auto path = std::filesystem::canonical(info.dli_fname, unresolved);
  return unresolved ? this_program() : path;
}

}  // namespace kiln
