#include "toolchain/nvrtc_files.h"

#include <charconv>
#include <compare>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "util/folder_names.h"

namespace kiln::device {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBuiltins = "libnvrtc-builtins.so.";

// Reads 13 from "13.0.88" and leaves "0.88".
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0)
    return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.starts_with('.'))
    text.remove_prefix(1);
  return number;
}

// "libnvrtc.so.13.0.88" is 13.0; "libnvrtc.so.13" is 13 without a minor version.
struct FileVersion {
  std::optional<int> major;
  std::optional<int> minor;
  friend auto operator<=>(const FileVersion&, const FileVersion&) = default;
};

FileVersion version_after(std::string_view stem, std::string_view name) {
  if (!name.starts_with(stem))
    return {};
  name.remove_prefix(stem.size());
  FileVersion version;
  version.major = take_number(name);
  if (version.major)
    version.minor = take_number(name);
  return version;
}

bool has_cuda_headers(const fs::path& folder) {
  std::error_code error;  // a folder that cannot be read has none
  return fs::exists(folder / "cuda_fp16.h", error);
}

}  // namespace

std::optional<fs::path> builtins_beside(const fs::path& nvrtc,
                                        std::optional<CudaVersion> version) {
  FileVersion own = version_after("libnvrtc.so.", nvrtc.filename().native());
  if (version)
    own = {version->major, version->minor};
  // An equal minor ranks first: but every 11.x since 11.2 is named libnvrtc.so.11.2.
  using Rank = std::pair<bool, FileVersion>;
  std::optional<Rank> best_rank;
  fs::path best;
  const auto is_one = [](std::string_view name) { return name.starts_with(kBuiltins); };
  for (const std::string& name : folder_names(nvrtc.parent_path(), is_one)) {
    const FileVersion found = version_after(kBuiltins, name);
    const Rank rank{found == own, found};
    if (!found.minor || (own.major && found.major != own.major) ||
        (version && found != own) || (best_rank && rank <= *best_rank))
      continue;
    best_rank = rank;
    best = nvrtc.parent_path() / name;
  }
  if (!best_rank)
    return std::nullopt;
  std::error_code error;
  const fs::path resolved = fs::canonical(best, error);
  return error ? std::nullopt : std::optional(resolved);
}

std::vector<fs::path> include_roots_of(const fs::path& nvrtc) {
  const fs::path lib = nvrtc.parent_path();
  const fs::path root = lib.parent_path();
  const fs::path packages = root.parent_path();  // nvidia/ in a CUDA 12 wheel
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
