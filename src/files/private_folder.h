// A folder of this process alone, for files that it gives out: whoever else may change
// a cache, what this process reads stays as it was checked.

#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/object.h"
#include "codec/digest.h"
#include "kiln/result.h"
#include "util/file_stamp.h"
#include "util/fork_count.h"
#include "util/kept_fd.h"

namespace kiln::files {

/// Where the files of an object lie.
struct Given {
  std::filesystem::path folder;
  std::vector<std::string> names;  // relative to it, sorted
};

/// "kiln-files-<uid>-XXXXXX" in TMPDIR, else in /tmp. It goes with the process, or, if
/// that is killed, with the next one that makes such a folder.
/// Thread safety: every method may run concurrently.
/// Fork safety: a forked child makes one of its own.
class PrivateFolder {
 public:
  /// Of this process; never destroyed.
  [[nodiscard]] static PrivateFolder& of_process();

  /// The files of a checked object, written at the first call for its key. If somebody
  /// has changed one, they are written again, in another folder. Cost of a further
  /// call: one stat for each file. Errors: kCorrupt, kIo.
  [[nodiscard]] Result<Given> give(const cache::StoredObject& object);
  /// An empty folder. Errors: kIo.
  [[nodiscard]] Result<std::filesystem::path> new_folder();

 private:
  struct Known {
    Given given;
    std::vector<FileStamp> stamps;  // of `given.names`
  };

  PrivateFolder();
  [[nodiscard]] std::optional<Given> known(const Digest& key);
  [[nodiscard]] Result<std::filesystem::path> try_new_folder(
      const std::filesystem::path& parent);
  [[nodiscard]] Given keep(const Digest& key, Known&& made);
  [[nodiscard]] bool needs_folder();
  /// By this process. The caller holds the mutex.
  [[nodiscard]] bool is_made() const;

  std::optional<OwnerProcess> owner_;  // of what follows; none: nothing is made yet
  std::filesystem::path path_;
  KeptFd held_;  // locked while this lives
  std::map<Digest, Known> known_;
  std::uint64_t folders_ = 0;
};

/// Folders that may not be written, too. Errors: none; the sweep of a later process
/// removes what is left.
void remove_whole(const std::filesystem::path& folder);

/// All regular files below `folder`, sorted. Errors: kIo; kInvalidArgument, naming what
/// is neither file nor folder.
[[nodiscard]] Result<std::vector<std::string>> files_below(
    const std::filesystem::path& folder);

}  // namespace kiln::files
