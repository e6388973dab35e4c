#include "cudnn/installed_cudnn.h"

#include "util/try.h"

namespace kiln::attention {

Result<std::vector<LibraryCandidate>> find_cudnn(
    const std::filesystem::path& explicit_path, const LibraryPlaces& places) {
  return find_libraries({.name = "libcudnn.so.9",
                         .explicit_path = explicit_path,
                         .explicit_origin = "KILN_CUDNN"},
                        places);
}

Result<CudnnLibrary> open_installed_cudnn(const std::filesystem::path& explicit_path,
                                          const LibraryPlaces& places) {
  const auto found = KILN_TRY(find_cudnn(explicit_path, places));
  if (found.empty())
    return fail(ErrorCode::kUnavailable,
                "no libcudnn.so.9 found: install cuDNN 9, set KILN_CUDNN, or name a "
                "version");
  return CudnnLibrary::open(found.front().path);
}

Result<CudnnVersion> installed_cudnn_version(const std::filesystem::path& explicit_path,
                                             const LibraryPlaces& places) {
  return KILN_TRY(open_installed_cudnn(explicit_path, places)).version();
}

}  // namespace kiln::attention
