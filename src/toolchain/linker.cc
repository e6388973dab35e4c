#include "toolchain/linker.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codec/digest.h"
#include "toolchain/nvrtc_wheels.h"
#include "util/elf.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::device {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestArchive = 64U << 20U;

/// The library folders of the toolkit: one, or side by side in wheels for CUDA 12; by
/// the link that was found, and by the file itself.
std::vector<fs::path> folders_of(const Toolchain& toolchain, std::string_view wheel) {
  std::vector<fs::path> folders;
  for (const fs::path& nvrtc : {toolchain.found_at, toolchain.nvrtc}) {
    const fs::path own = nvrtc.parent_path();
    folders.push_back(own);
    folders.push_back(own.parent_path().parent_path() / wheel / "lib");
  }
  return folders;
}

std::optional<fs::path> linker_path(const Toolchain& toolchain,
                                    const LibraryPlaces& places) {
  const std::string name =
      fmt::format("libnvJitLink.so.{}", toolchain.facts.version.major);
  for (const fs::path& folder : folders_of(toolchain, "nvjitlink")) {
    std::error_code not_there;
    fs::path found = fs::canonical(folder / name, not_there);
    if (!not_there)
      return found;
  }
  const auto found = find_libraries({name, {}, {}}, places);
  if (!found || found->empty())
    return std::nullopt;
  return found->front().path;
}

Result<Bytes> device_runtime_of(const Toolchain& toolchain) {
  for (const fs::path& folder : folders_of(toolchain, "cuda_runtime")) {
    if (auto bytes = KILN_TRY(read_file(folder / "libcudadevrt.a", kLargestArchive)))
      return *std::move(bytes);
  }
  return Bytes();
}

}  // namespace

Result<Linker> find_linker(const Toolchain& toolchain, const LibraryPlaces& places) {
  Linker linker;
  if (!toolchain.installed() && toolchain.linker) {
    linker.id = *toolchain.linker;
    return linker;
  }
  const auto path = toolchain.installed() ? linker_path(toolchain, places)
                                          : std::optional<fs::path>();
  if (!path) {
    return fail(ErrorCode::kUnavailable,
                "no libnvJitLink.so.{} was found for {}, and code that is compiled "
                "with -rdc=true or -dlto has to be linked: install the CUDA toolkit, "
                "or NVIDIA's wheel nvidia-nvjitlink{}",
                toolchain.facts.version.major, toolchain.name(),
                wheel_suffix(toolchain.facts.version));
  }
  linker.path = *path;
  linker.id.nvjitlink = KILN_TRY(read_build_id(*path));
  linker.device_runtime = KILN_TRY(device_runtime_of(toolchain));
  if (!linker.device_runtime.empty())
    linker.id.device_runtime = Digest::of(linker.device_runtime).hex();
  return linker;
}

}  // namespace kiln::device
