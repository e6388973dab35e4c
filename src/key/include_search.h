// Finds the file of an #include in NVRTC's look-up order. Asks the file system at most
// once per path.

#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "key/header_snapshot.h"
#include "key/key.h"
#include "key/toolkit_folders.h"
#include "util/file_stamp.h"
#include "util/include_directives.h"

namespace kiln::key {

/// NVRTC also tries this suffix for a header without one.
inline constexpr std::string_view kStdSuffix = ".stdh";

using FileIdentity = std::pair<std::uint64_t, std::uint64_t>;  // device and inode

/// Where a look-up starts.
struct Includer {
  std::optional<std::string> folder;  // ends with a '/'; none: look up as for <x>
  std::size_t next_dir = 0;           // where #include_next continues
  bool has_file = true;               // false: the source or a header in memory
};

/// What a look-up found: exactly one of the three, or nothing.
struct FoundHeader {
  const MemoryHeader* memory = nullptr;
  std::optional<std::string> toolkit;  // ToolkitFolders::label()
  std::optional<FileStamp> file;
  std::string path;  // of toolkit or file, as the compiler spells it
  // A header in memory whose name is a path that was tried. Once NVRTC has seen a
  // #pragma once in it, NVRTC takes it for the file at that path.
  const MemoryHeader* namesake = nullptr;
  Includer as_includer;
};

/// Thread safety: none. Knows the file system as it was when each path was first tried.
class IncludeSearch {
 public:
  /// `toolkit` must outlive it.
  IncludeSearch(const SourceKeyInput& input, const ToolkitFolders& toolkit);

  [[nodiscard]] FoundHeader find(Lookup lookup, const std::string& operand,
                                 const Includer& from);

  /// The file outside the toolkit that has the name of a header in memory.
  [[nodiscard]] FoundHeader shadowed_by(const MemoryHeader& header);

  /// Files outside the toolkit that its headers find instead of their own when they
  /// include one of `operands`, each with the number of toolkit folders that are
  /// searched before it. Cost: for each folder a listing, or, where that says too
  /// little, a look-up for each first component; a stat for each operand whose first
  /// component is there.
  struct Shadow {
    std::string operand;
    std::size_t toolkit_folders_before = 0;
    FoundHeader header;
  };
  [[nodiscard]] std::vector<Shadow> find_shadows(
      const std::vector<std::string_view>& operands);

  /// Device and inode of the folder where a header's own quoted includes start.
  [[nodiscard]] FileIdentity identity_of(const std::string& folder);

  /// Moves out all paths that were tried; the search then knows nothing.
  [[nodiscard]] HeaderLookups take_lookups();

 private:
  struct Folder {
    std::string path;  // "" or with a '/' at its end
    std::optional<ToolkitPlace> toolkit;
  };

  /// find() without NVRTC's first step, the headers in memory.
  [[nodiscard]] FoundHeader find_file(Lookup lookup, const std::string& operand,
                                      const Includer& from);
  [[nodiscard]] std::optional<FoundHeader> look(const Folder& folder,
                                                const std::string& operand);
  [[nodiscard]] const MemoryHeader* namesake(std::string_view path) const;
  [[nodiscard]] std::optional<FileStamp> stamp_of(const std::string& path);
  [[nodiscard]] std::optional<std::string> toolkit_path(const Folder& folder,
                                                        const std::string& path,
                                                        std::string_view tail) const;

  const ToolkitFolders& toolkit_;
  const std::string working_directory_;
  std::vector<Folder> folders_;
  std::map<std::string, const MemoryHeader*, std::less<>> memory_;
  const MemoryHeader* first_namesake_ = nullptr;  // in the last find_file()
  bool quoted_sees_folder_ = true;
  FileStamps stamps_;
  std::unordered_map<std::string, std::optional<FileStamp>> files_;
  std::unordered_map<std::string, FileIdentity> identities_;
};

}  // namespace kiln::key
