#include "toolchain/packaged_headers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>

#include "codec/digest.h"
#include "toolchain/nvrtc_files.h"
#include "util/bytes.h"
#include "util/log.h"
#include "util/posix_error.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/write_file.h"

namespace kiln::device {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "packaged-headers-";
constexpr std::string_view kInclude = "usr/include/";
constexpr std::uint64_t kLargestList = 8ULL << 20U;

/// The header files of these packages, below /usr/include; empty: there are none of
/// that version.
std::set<std::string> header_files(const fs::path& root, int cuda_major) {
  if (root.empty() || major_of_headers(root / kInclude) != cuda_major)
    return {};
    // What is of one architecture has it in the name of its list.
#if defined(__aarch64__)
  constexpr const char* kArchitecture = ":arm64";
#else
  constexpr const char* kArchitecture = ":amd64";
#endif
  std::set<std::string> files;
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
      // A package has one of the two, or is not installed.
      std::ignore = read_lines(root / list, kLargestList, take);
    }
  }
  return files.contains("cuda_fp16.h") ? files : std::set<std::string>();
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
  std::set<fs::path> made;
  std::error_code error;
  for (const std::string& file : files) {
    const fs::path link = links / file;
    if (made.insert(link.parent_path()).second)
      fs::create_directories(link.parent_path(), error);
    KILN_TRY(make_link(include / file, link));  // fails where its folder was not made
  }
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
