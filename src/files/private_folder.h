// A folder of this process alone, for files that it gives out: whoever else may change
// a cache, what this process reads stays as it was checked.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
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
  bool is_new = false;             // written by this call
};

/// "kiln-files-<uid>-XXXXXX". It goes with the process, or, if that is killed, with the
/// next one that makes such a folder.
/// Thread safety: every method may run concurrently.
/// Fork safety: a forked child makes one of its own.
class PrivateFolder {
 public:
  /// In TMPDIR, else in /tmp; of this process, never destroyed.
  [[nodiscard]] static PrivateFolder& on_disk();
  /// The same in /dev/shm, where a new file takes 15 us, and on ext4 up to 200.
  [[nodiscard]] static PrivateFolder& in_memory();

  /// What give() has written for an object, if nobody has changed it; else it is to be
  /// given again, in another folder. Cost: one stat for each file.
  [[nodiscard]] std::optional<Given> known(const cache::StoredObject& object);
  /// Writes the files of a checked object that known() does not have. Errors: kCorrupt,
  /// kIo.
  [[nodiscard]] Result<Given> give(const cache::StoredObject& object);
  /// An empty folder. Errors: kIo.
  [[nodiscard]] Result<std::filesystem::path> new_folder();

 private:
  /// A key, and the digest of a payload: an artifact may have been built anew.
  using Content = std::pair<Digest, Digest>;
  struct Known {
    Given given;
    std::vector<FileStamp> stamps;  // of `given.names`
  };

  explicit PrivateFolder(std::filesystem::path parent) : parent_(std::move(parent)) {}
  [[nodiscard]] std::filesystem::path parent() const;
  void remove();
  [[nodiscard]] Result<std::filesystem::path> try_new_folder(
      const std::filesystem::path& parent);
  [[nodiscard]] Given keep(const Content& content, Known&& made);
  [[nodiscard]] bool needs_folder();
  /// By this process. The caller holds the mutex.
  [[nodiscard]] bool is_made() const;

  const std::filesystem::path parent_;  // "": TMPDIR, else /tmp
  std::optional<OwnerProcess> owner_;   // of what follows; none: nothing is made yet
  std::filesystem::path path_;
  KeptFd held_;  // locked while this lives
  std::map<Content, Known> known_;
  std::uint64_t folders_ = 0;
};

/// Writes the files of a checked object, or finds them: in memory, if they are few
/// bytes, TMPDIR names no place, and /dev/shm has plenty. Errors: as
/// PrivateFolder::give().
[[nodiscard]] Result<Given> give_files(const cache::StoredObject& object);

struct FileModes {
  mode_t file;
  mode_t program;
};

/// Writes the files of a checked object, its source too, as new files below `folder`,
/// and gives their names, sorted. After an error some may be there. Errors: kCorrupt,
/// kIo (one is there already, too).
[[nodiscard]] Result<std::vector<std::string>> write_files(
    const cache::StoredObject& object, const std::filesystem::path& folder,
    const FileModes& modes);

/// Folders that may not be written, too. Errors: none; the sweep of a later process
/// removes what is left.
void remove_whole(const std::filesystem::path& folder);

/// All regular files below `folder`, sorted. Errors: kIo; kInvalidArgument, naming what
/// is neither file nor folder.
[[nodiscard]] Result<std::vector<std::string>> files_below(
    const std::filesystem::path& folder);

}  // namespace kiln::files
