// Whether this build and this NVRTC make precompiled headers.

#pragma once

#include <dlfcn.h>

#include "tests/support/compile_jobs.h"

namespace kiln::test {

/// Why there are none; "" where there are.
inline std::string why_no_precompiled_headers() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return "a sanitizer's memory is in the place of the headers";
#else
  const auto path = real_nvrtc().nvrtc;
  if (path.empty())
    return "no NVRTC";
  void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  const bool has =
      library != nullptr && ::dlsym(library, "nvrtcGetPCHCreateStatus") != nullptr;
  return has ? "" : path.native() + " is older than 12.8, which makes the first";
#endif
}

}  // namespace kiln::test
