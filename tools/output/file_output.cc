#include "tools/output/file_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "util/posix_error.h"
#include "util/try.h"
#include "util/unique_fd.h"
#include "util/write_file.h"

namespace kiln::tools {
namespace {

constexpr mode_t kMode = 0644;

/// Writes to a device, pipe or link that the user names, and never replaces it:
/// /dev/stdout is a link, which leads to a file if the output is redirected to one.
Result<void> write_in_place(const std::string& path, ByteView bytes) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (!file)
    return posix_error("open", path, errno);
  KILN_TRY(write_all(file.get(), bytes, path));
  if (::close(file.release()) != 0)
    return posix_error("close", path, errno);
  return {};
}

Result<void> check_parent(std::string_view option, const std::filesystem::path& path) {
  auto folder = path.parent_path();
  if (folder.empty())
    folder = ".";
  std::error_code error;
  if (std::filesystem::is_directory(folder, error))
    return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} {}: there is no folder {}", option, path.native(),
                          folder.native()));
}

}  // namespace

Result<void> check_output_path(std::string_view option, const std::string& path) {
  if (path == "-")
    return {};
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} {}: that is a folder", option, path));
  }
  return check_parent(option, path);
}

Result<void> check_output_folder(std::string_view option, const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (!std::filesystem::exists(status)) {
    const std::filesystem::path folder(path);
    return check_parent(option, folder.has_filename() ? folder : folder.parent_path());
  }
  if (std::filesystem::is_directory(path, error) &&
      std::filesystem::is_empty(path, error))
    return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} {}: that is not an empty folder", option, path));
}

Result<void> write_output_file(const std::string& path, ByteView bytes) {
  if (path == "-")
    return write_all(STDOUT_FILENO, bytes, "standard output");
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  const bool is_link = std::filesystem::is_symlink(path, ignored);
  if (std::filesystem::exists(status) && (is_link || !is_regular_file(status)))
    return write_in_place(path, bytes);
  return replace_file(path, bytes, kMode);
}

}  // namespace kiln::tools
