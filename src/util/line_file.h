// A file that processes add lines to: each line is one write to its end.

#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "kiln/result.h"
#include "util/kept_fd.h"

namespace kiln {

/// Thread safety: add() may run concurrently, and other processes may add to the file.
/// Fork safety: a forked child may go on adding.
class LineFile {
 public:
  enum class Takes : std::uint8_t {
    kRegularFiles,  // a write to a pipe whose reader has ended would end the host
    kAnyFile,       // of a program that ignores SIGPIPE
    kOwnFiles,      // regular ones of this user, and no links to them
  };

  /// Opens `path` for appending, or creates it with mode 0644 less the umask. Never
  /// waits for the reader of a pipe. Errors: kIo, naming path and errno.
  [[nodiscard]] static Result<std::unique_ptr<LineFile>> open(
      const std::filesystem::path& path, Takes takes = Takes::kRegularFiles);

  /// Adds `line`, which ends in a newline. A line that was cut off, by a full disk,
  /// ends before the next line begins. Errors: kIo.
  [[nodiscard]] Result<void> add(std::string line);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  LineFile(KeptFd file, std::filesystem::path path);

  // Constant after construction.
  const KeptFd file_;
  const std::filesystem::path path_;

  std::atomic<bool> is_cut_off_ = false;  // the last line
};

}  // namespace kiln
