#include "toolchain/nvrtc_files.h"

#include <algorithm>
#include <charconv>
#include <compare>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "toolchain/packaged_headers.h"
#include "util/folder_names.h"
#include "util/read_file.h"

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

/// Resolved; nullopt: it is not there, or is the system's.
std::optional<fs::path> header_folder(const fs::path& folder) {
  std::error_code error;
  fs::path resolved = fs::canonical(folder, error);
  if (error || resolved == "/usr/include" || !fs::is_directory(resolved, error))
    return std::nullopt;
  return resolved;
}

std::vector<fs::path> roots_of_toolkit(const fs::path& root) {
#if defined(__aarch64__)
  constexpr const char* kTarget = "targets/sbsa-linux/include";
#else
  constexpr const char* kTarget = "targets/x86_64-linux/include";
#endif
  for (const fs::path& folder : {root / "include", root / kTarget}) {
    const auto include = header_folder(folder);
    if (!include || !has_cuda_headers(*include))
      continue;
    std::vector<fs::path> roots{*include};
    for (const fs::path& cccl :
         {*include / "cccl", root.parent_path() / "cuda_cccl/include"}) {
      if (auto found = header_folder(cccl))
        roots.push_back(*std::move(found));
    }
    return roots;
  }
  return {};
}

/// The runtime's first, then CCCL's, then those of all other wheels: of cuRAND, and of
/// the compiler, whose crt/ the runtime's include.
std::vector<fs::path> roots_of_wheels(const fs::path& packages) {
  const auto runtime = header_folder(packages / "cuda_runtime/include");
  if (!runtime || !has_cuda_headers(*runtime))
    return {};
  std::vector<fs::path> roots{*runtime};
  const auto add = [&](const fs::path& folder) {
    auto found = header_folder(folder);
    if (found && std::ranges::find(roots, *found) == roots.end())
      roots.push_back(*std::move(found));
  };
  add(packages / "cuda_cccl/include");
  auto names = folder_names(packages, [](std::string_view) { return true; });
  std::ranges::sort(names);
  for (const std::string& name : names) add(packages / name / "include");
  return roots;
}

/// With CCCL's headers and the compiler's, which wheels have in packages of their own:
/// PyTorch's have neither.
bool is_whole(const std::vector<fs::path>& roots) {
  const auto has = [&](const char* file) {
    return std::ranges::any_of(roots, [&](const fs::path& root) {
      std::error_code error;
      return fs::exists(root / file, error);
    });
  };
  return has("cuda/std/version") && has("crt/mma.h");
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

std::optional<int> major_of_headers(const fs::path& include) {
  constexpr std::uint64_t kLargest = 8ULL << 20U;
  constexpr std::string_view kDefines = "#define CUDA_VERSION ";
  const std::string text = read_text_file(include / "cuda.h", kLargest).value_or("");
  const std::size_t at = text.find(kDefines);
  if (at == std::string::npos)
    return std::nullopt;
  std::string_view rest = std::string_view(text).substr(at + kDefines.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const auto version = take_number(rest);
  return version ? std::optional(*version / 1000) : std::nullopt;
}

std::vector<fs::path> include_roots_of(const HeaderSearch& search) {
  std::vector<fs::path> part;
  const auto is_answer = [&](const std::vector<fs::path>& roots) {
    if (part.empty())
      part = roots;
    return is_whole(roots);
  };
  for (const fs::path& nvrtc : {search.found_at, search.nvrtc}) {
    const fs::path root = nvrtc.parent_path().parent_path();
    auto roots = roots_of_toolkit(root);
    if (roots.empty())
      roots = roots_of_wheels(root.parent_path());  // nvidia/ of wheels for CUDA 12
    if (is_answer(roots))
      return roots;
  }
  for (const fs::path& toolkit : search.toolkits) {
    auto roots = roots_of_toolkit(toolkit);
    if (!roots.empty() && major_of_headers(roots.front()) == search.version.major &&
        is_answer(roots))
      return roots;
  }
  if (!part.empty())
    return part;
  if (auto links =
          packaged_headers(search.system_root, search.links, search.version.major))
    return {*std::move(links)};
  return {};
}

}  // namespace kiln::device
