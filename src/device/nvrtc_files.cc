#include "device/nvrtc_files.h"

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

namespace kiln::device {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBuiltins = "libnvrtc-builtins.so.";

// "13.0.88" gives 13.0; "13" and "" give what they have.
struct FileVersion {
  std::optional<int> major;
  std::optional<int> minor;
};

std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc())
    return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.starts_with('.'))
    text.remove_prefix(1);
  return number;
}

FileVersion version_in(std::string_view name, std::string_view before) {
  const std::size_t at = name.find(before);
  if (at == std::string_view::npos)
    return {};
  std::string_view rest = name.substr(at + before.size());
  FileVersion version;
  version.major = take_number(rest);
  if (version.major)
    version.minor = take_number(rest);
  return version;
}

bool has_cuda_headers(const fs::path& folder) {
  std::error_code error;  // a folder that cannot be read has none
  return fs::exists(folder / "cuda_fp16.h", error);
}

}  // namespace

std::optional<fs::path> builtins_beside(const fs::path& nvrtc,
                                        std::optional<CudaVersion> version) {
  FileVersion own = version_in(nvrtc.filename().native(), "libnvrtc.so.");
  if (version)
    own = {version->major, version->minor};
  std::optional<fs::path> best;
  FileVersion best_version;
  std::error_code error;
  fs::directory_iterator at(nvrtc.parent_path(), error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename();
    const FileVersion found = version_in(name, kBuiltins);
    if (!name.starts_with(kBuiltins) || !found.minor ||
        (own.major && found.major != own.major) ||
        (version && found.minor != own.minor))
      continue;
    // A libnvrtc.so.11.2 stands for every 11.x since: its own minor is only a
    // preference.
    const bool exact = found.minor == own.minor && best_version.minor != own.minor;
    const bool newer =
        best_version.minor != own.minor &&
        (found.major > best_version.major ||
         (found.major == best_version.major && found.minor > best_version.minor));
    if (!best || exact || newer) {
      best = at->path();
      best_version = found;
    }
  }
  if (!best)
    return std::nullopt;
  const fs::path resolved = fs::canonical(*best, error);
  return error ? std::nullopt : std::optional(resolved);
}

std::vector<fs::path> include_roots_of(const fs::path& nvrtc) {
  const fs::path lib = nvrtc.parent_path();
  const fs::path root = lib.parent_path();
  const fs::path packages = root.parent_path();  // of a CUDA 12 wheel: nvidia
  std::vector<fs::path> candidates{root / "include"};
#if defined(__aarch64__)
  candidates.push_back(root / "targets/sbsa-linux/include");
#else
  candidates.push_back(root / "targets/x86_64-linux/include");
#endif
  candidates.push_back(packages / "cuda_runtime/include");
  for (const fs::path& candidate : candidates) {
    std::error_code error;
    const fs::path include = fs::canonical(candidate, error);
    if (error || include == "/usr/include" || !has_cuda_headers(include))
      continue;
    std::vector<fs::path> roots{include};
    for (const fs::path& cccl : {include / "cccl", packages / "cuda_cccl/include"}) {
      const fs::path resolved = fs::canonical(cccl, error);
      if (!error && fs::is_directory(resolved, error))
        roots.push_back(resolved);
    }
    return roots;
  }
  return {};
}

}  // namespace kiln::device
