#include "toolchain/packaged_headers.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

#include "codec/digest.h"
#include "toolchain/nvrtc_files.h"
#include "util/bytes.h"
#include "util/log.h"
#include "util/posix_error.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::device {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "packaged-headers-";
constexpr std::string_view kInclude = "usr/include/";
constexpr std::uint64_t kLargestList = 8ULL << 20U;

/// The header files of these packages, below /usr/include; empty: there are none of
/// that version.
std::set<std::string> header_files(const fs::path& root, int cuda_major) {
  std::set<std::string> files;
  if (root.empty() || major_of_headers(root / kInclude) != cuda_major)
    return files;
    // Those of one architecture have it in the names of their lists.
#if defined(__aarch64__)
  constexpr const char* kArchitecture = ":arm64";
#else
  constexpr const char* kArchitecture = ":amd64";
#endif
  const auto take = [&](std::string_view line) -> Result<void> {
    std::error_code error;
    if (line.starts_with('/') && line.substr(1).starts_with(kInclude) &&
        line == fs::path(line).lexically_normal().native() &&
        line.find('\0') == line.npos &&
        fs::is_regular_file(root / line.substr(1), error))
      files.emplace(line.substr(1 + kInclude.size()));
    return {};
  };
  for (const char* const package :
       {"nvidia-cuda-dev", "libcu++-dev", "libcub-dev", "libthrust-dev"}) {
    for (const char* const architecture : {"", kArchitecture}) {
      const auto list =
          fmt::format("var/lib/dpkg/info/{}{}.list", package, architecture);
      std::ignore =
          read_lines(root / list, kLargestList, take);  // of some there is none
    }
  }
  return files;
}

Result<void> make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST)
    return {};
  return posix_error("mkdir", path.native(), errno);
}

/// `link` leads to `target` afterwards.
Result<void> make_link(const fs::path& target, const fs::path& link) {
  std::error_code error;
  if (fs::read_symlink(link, error) == target)
    return {};
  if (!error || error != std::errc::no_such_file_or_directory)
    std::ignore = ::unlink(link.c_str());
  if (::symlink(target.c_str(), link.c_str()) == 0 ||
      (errno == EEXIST && fs::read_symlink(link, error) == target))
    return {};
  return posix_error("symlink", link.native(), errno);
}

Result<fs::path> link_files(const fs::path& include, const OwnFolder& folder,
                            const std::set<std::string>& files) {
  std::string all;
  for (const std::string& file : files) all += file + '\n';
  const std::string name =
      fmt::format("{}{:.16}", kPrefix, Digest::of(as_bytes(all)).hex());
  KILN_TRY(folder.check());
  KILN_TRY(make_folder(folder.path()));
  const fs::path links = folder.path() / name;
  KILN_TRY(make_folder(links));
  KILN_TRY(folder.has(name));
  std::set<fs::path> made{fs::path()};
  for (const std::string& file : files) {
    fs::path parents;
    for (const fs::path& parent : fs::path(file).parent_path()) {
      parents /= parent;
      if (made.insert(parents).second)
        KILN_TRY(make_folder(links / parents));
    }
    KILN_TRY(make_link(include / file, links / file));
  }
  std::error_code error;
  fs::path resolved = fs::canonical(links, error);
  return error ? links : resolved;
}

}  // namespace

std::optional<fs::path> packaged_headers(const fs::path& root, const OwnFolder& folder,
                                         int cuda_major) {
  const auto files = header_files(root, cuda_major);
  if (folder.empty() || files.empty())
    return std::nullopt;
  auto links = link_files(root / kInclude, folder, files);
  if (links)
    return *std::move(links);
  log(LogLevel::kDebug,
      {"no links to the headers of packages: ", links.error().message});
  return std::nullopt;
}

bool has_packaged_headers(const fs::path& root, int cuda_major) {
  return !header_files(root, cuda_major).empty();
}

bool is_packaged_headers(const fs::path& folder) {
  return folder.filename().native().starts_with(kPrefix);
}

}  // namespace kiln::device
