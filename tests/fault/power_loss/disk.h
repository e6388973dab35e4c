// What lies on a disk below one folder, as a value: read from a real folder, changed by
// the model of crash_states.h, and written to a real folder again.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "util/bytes.h"

namespace kiln::test {

/// A file whatever its names: an inode. Files that were there before the log begins
/// have their inode's number.
using FileNumber = std::uint64_t;

struct File {
  Bytes bytes;
  mode_t mode = 0600;
  std::int64_t mtime_ns = 0;  // 0: as it comes
};

struct Disk {
  std::map<std::string, std::int64_t> folders;  // by path; mtime in unix ns, 0: any
  std::map<std::string, FileNumber> names;      // by path; two may be of one file
  std::map<FileNumber, File> files;

  /// Paths are relative to `root`, which is no folder of its own here.
  [[nodiscard]] static Disk read(const std::filesystem::path& root);
  /// `root` is made, and must not be there before.
  void write(const std::filesystem::path& root) const;

  /// The file of that name, or null.
  [[nodiscard]] const File* find(const std::string& name) const;
  /// Adds a file of that name, or gives the name to a new file.
  File& add(const std::string& name, Bytes bytes);
  /// Drops names and folders without a folder to be in, then files without a name.
  void prune();
  /// Equal for disks of which a program sees no difference.
  [[nodiscard]] std::string fingerprint() const;
};

/// The folder of a relative path; empty for the root.
[[nodiscard]] std::string folder_of(const std::string& path);

}  // namespace kiln::test
