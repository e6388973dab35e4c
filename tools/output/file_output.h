// Files that the user names: -o, --extract, --profile.

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "kiln/result.h"
#include "util/bytes.h"
#include "util/unique_fd.h"
#include "util/write_file.h"

namespace kiln::tools {

/// Checks, before any work, that a file can be made at `path`; "-" always can.
/// Errors: kNotFound (no such folder), kInvalidArgument (it is a folder).
[[nodiscard]] Result<void> check_output_path(std::string_view option,
                                             const std::string& path);

/// The same for a folder of new files; one that is there must be empty.
/// Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_output_folder(std::string_view option,
                                               const std::string& path);

/// Replaces `path` in one step, so that a full disk leaves the old file whole; "-" is
/// standard output. The permissions are rw-r--r--. Errors: kIo.
[[nodiscard]] Result<void> write_output_file(const std::string& path, ByteView bytes);

/// The same of a file that is written by others, in any order, up to commit().
/// Thread safety: none.
class OutputFile {
 public:
  /// Errors: kIo.
  [[nodiscard]] static Result<OutputFile> create(const std::string& path);

  [[nodiscard]] int descriptor() const;
  [[nodiscard]] Result<void> commit();

 private:
  OutputFile(std::string path, std::variant<NewFile, UniqueFd> file)
      : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  std::variant<NewFile, UniqueFd> file_;  // the latter is copied to its place
};

}  // namespace kiln::tools
