#include "tools/output/file_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "util/posix_error.h"
#include "util/try.h"
#include "util/unique_fd.h"
#include "util/write_file.h"

namespace kiln::tools {
namespace {

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

}  // namespace

Result<void> write_output_file(const std::string& path, ByteView bytes) {
  constexpr mode_t kMode = 0644;
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
