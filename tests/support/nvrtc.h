// A real NVRTC opened in the test's own process, where there is one.

#pragma once

#include <dlfcn.h>
#include <nvrtc.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/target.h"
#include "toolchain/nvrtc_files.h"
#include "util/bytes.h"
#include "util/library_search.h"

namespace kiln::test {

/// The libnvrtc that KILN_NVRTC names, else each that the search finds here.
inline std::vector<LibraryCandidate> nvrtc_libraries() {
  const char* const given = std::getenv("KILN_NVRTC");
  auto found = find_libraries({"libnvrtc.so", given == nullptr ? "" : given, {}},
                              LibraryPlaces::of_process())
                   .value_or(std::vector<LibraryCandidate>());
  if (given != nullptr && !found.empty())
    found.erase(found.begin() + 1, found.end());
  return found;
}

/// Thread safety: none.
class Nvrtc {
 public:
  explicit Nvrtc(const std::filesystem::path& path) {
    // Before NVRTC asks for them: under AddressSanitizer, which takes dlopen() over,
    // the loader does not see NVRTC's own search path.
    if (const auto builtins = device::builtins_beside(path, std::nullopt))
      ::dlopen(builtins->c_str(), RTLD_NOW | RTLD_LOCAL);
    library_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  }

  [[nodiscard]] bool opened() const { return library_ != nullptr; }

  [[nodiscard]] device::NvrtcFacts facts() const {
    device::NvrtcFacts facts;
    call<decltype(&nvrtcVersion)>("nvrtcVersion")(&facts.version.major,
                                                  &facts.version.minor);
    int count = 0;
    call<decltype(&nvrtcGetNumSupportedArchs)>("nvrtcGetNumSupportedArchs")(&count);
    std::vector<int> sms(static_cast<std::size_t>(count));
    call<decltype(&nvrtcGetSupportedArchs)>("nvrtcGetSupportedArchs")(sms.data());
    for (const int sm : sms) facts.architectures.push_back({sm / 10, sm % 10});
    return facts;
  }

  /// The image, or nothing where NVRTC refuses. `target` is "sm_90a" or "compute_90".
  [[nodiscard]] Bytes compile(const std::string& source,
                              const std::string& target) const {
    nvrtcProgram program = nullptr;
    call<decltype(&nvrtcCreateProgram)>("nvrtcCreateProgram")(
        &program, source.c_str(), "kernel.cu", 0, nullptr, nullptr);
    const std::string option = "--gpu-architecture=" + target;
    const char* options = option.c_str();
    Bytes image;
    if (call<decltype(&nvrtcCompileProgram)>("nvrtcCompileProgram")(
            program, 1, &options) == NVRTC_SUCCESS)
      image = image_of(program, target.starts_with("compute_"));
    call<decltype(&nvrtcDestroyProgram)>("nvrtcDestroyProgram")(&program);
    return image;
  }

 private:
  template <typename Function>
  [[nodiscard]] Function call(const char* name) const {
    return reinterpret_cast<Function>(::dlsym(library_, name));
  }

  [[nodiscard]] Bytes image_of(nvrtcProgram program, bool ptx) const {
    std::size_t size = 0;
    if (ptx)
      call<decltype(&nvrtcGetPTXSize)>("nvrtcGetPTXSize")(program, &size);
    else
      call<decltype(&nvrtcGetCUBINSize)>("nvrtcGetCUBINSize")(program, &size);
    Bytes image(size);
    auto* out = reinterpret_cast<char*>(image.data());
    if (ptx)
      call<decltype(&nvrtcGetPTX)>("nvrtcGetPTX")(program, out);
    else
      call<decltype(&nvrtcGetCUBIN)>("nvrtcGetCUBIN")(program, out);
    return image;
  }

  void* library_ = nullptr;  // kept open: NVRTC's threads may still run
};

}  // namespace kiln::test
