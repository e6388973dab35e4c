#include "util/scratch_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>
#include <tuple>

#include "util/posix_error.h"

namespace kiln {

std::filesystem::path temporary_folder() {
  std::error_code error;
  auto folder = std::filesystem::temp_directory_path(error);
  return error ? "/tmp" : folder;
}

Result<UniqueFd> open_scratch(std::span<const std::filesystem::path> folders) {
  for (const std::filesystem::path& folder : folders) {
    UniqueFd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (file)
      return file;
    std::string name = (folder / "kiln-XXXXXX").native();  // NFS, overlayfs
    file = UniqueFd(::mkostemp(name.data(), O_CLOEXEC));
    if (file) {
      std::ignore = ::unlink(name.c_str());
      return file;
    }
  }
  UniqueFd file(::memfd_create("kiln scratch", MFD_CLOEXEC));
  if (!file)
    return posix_error("create", "a file in memory", errno);
  return file;
}

Result<UniqueFd> open_scratch(const std::filesystem::path& folder) {
  return open_scratch(std::span(&folder, 1));
}

std::string scratch_name(int file) {
  std::error_code error;
  const auto folder =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), error)
          .parent_path();
  const bool is_temporary =
      std::filesystem::equivalent(folder, temporary_folder(), error);
  return "a temporary file in " + folder.native() + (is_temporary ? " (TMPDIR)" : "");
}

}  // namespace kiln
