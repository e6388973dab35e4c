#include "tools/output/file_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "util/file_range.h"
#include "util/posix_error.h"
#include "util/scratch_file.h"
#include "util/try.h"
#include "util/unique_fd.h"
#include "util/write_file.h"

namespace kiln::tools {
namespace {

constexpr mode_t kMode = 0644;

/// A device, pipe or link that the user names is written to, and never replaced:
/// /dev/stdout is a link, which leads to a file if the output is redirected to one.
bool is_written_in_place(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  return path == "-" || (std::filesystem::exists(status) &&
                         (std::filesystem::is_symlink(path, ignored) ||
                          !std::filesystem::is_regular_file(status)));
}

/// Calls `write` with a descriptor.
template <typename Write>
Result<void> write_in_place(const std::string& path, const Write& write) {
  if (path == "-")
    return write(STDOUT_FILENO, "standard output");
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (!file)
    return posix_error("open", path, errno);
  KILN_TRY(write(file.get(), path));
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
  return refuse("{} {}: there is no folder {}", option, path.native(), folder.native());
}

}  // namespace

Result<void> check_output_path(std::string_view option, const std::string& path) {
  if (path == "-")
    return {};
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return refuse("{} {}: that is a folder", option, path);
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
  return refuse("{} {}: that is not an empty folder", option, path);
}

Result<void> write_output_file(const std::string& path, ByteView bytes) {
  if (!is_written_in_place(path))
    return replace_file(path, bytes, kMode);
  return write_in_place(path, [&](int to, const std::string& name) {
    return write_all(to, bytes, name);
  });
}

Result<OutputFile> OutputFile::create(const std::string& path) {
  if (is_written_in_place(path)) {
    auto scratch = KILN_TRY(open_scratch(temporary_folder()));
    return OutputFile(path, std::move(scratch));
  }
  auto file = KILN_TRY(NewFile::create(path));
  return OutputFile(path, std::move(file));
}

int OutputFile::descriptor() const {
  const auto* const scratch = std::get_if<UniqueFd>(&file_);
  return scratch != nullptr ? scratch->get() : std::get<NewFile>(file_).descriptor();
}

Result<void> OutputFile::commit() {
  if (auto* const file = std::get_if<NewFile>(&file_))
    return file->commit(kMode);
  return write_in_place(path_, [&](int to, const std::string& name) -> Result<void> {
    const auto bytes =
        KILN_TRY(FileRange::of(std::move(std::get<UniqueFd>(file_)), name));
    constexpr std::uint64_t kStep = 1U << 20U;
    for (std::uint64_t at = 0; at < bytes.size(); at += kStep)
      KILN_TRY(write_all(to, KILN_TRY(bytes.read_up_to(at, kStep)), name));
    return {};
  });
}

}  // namespace kiln::tools
