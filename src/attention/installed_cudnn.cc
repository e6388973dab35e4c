#include "attention/installed_cudnn.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstddef>

#include "util/try.h"

namespace kiln::attention {

Result<std::vector<LibraryCandidate>> find_cudnn(
    const std::filesystem::path& explicit_path, const LibraryPlaces& places) {
  return find_libraries({.name = "libcudnn.so.9",
                         .explicit_path = explicit_path,
                         .explicit_origin = "KILN_CUDNN"},
                        places);
}

Result<CudnnVersion> installed_cudnn_version(const std::filesystem::path& explicit_path,
                                             const LibraryPlaces& places) {
  const auto found = KILN_TRY(find_cudnn(explicit_path, places));
  if (found.empty())
    return fail(ErrorCode::kUnavailable,
                "no libcudnn.so.9 found: install cuDNN 9, set KILN_CUDNN, or name a "
                "version");
  const std::filesystem::path& path = found.front().path;
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why =
        ::dlerror();  // glibc: one a thread. NOLINT(concurrency-mt-unsafe)
    return fail(ErrorCode::kUnavailable,
                fmt::format("cannot open cuDNN {}: {}", path.native(),
                            why == nullptr ? "unknown reason" : why));
  }
  using GetVersion = std::size_t (*)();
  const auto get_version =
      reinterpret_cast<GetVersion>(::dlsym(library, "cudnnGetVersion"));
  if (get_version == nullptr)
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} has no cudnnGetVersion", path.native()));
  return decoded(static_cast<long>(get_version()));
}

}  // namespace kiln::attention
