// Writing whole files. Objects of the cache are not written here: they have rules of
// their own, in cache/publish.cc.

#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

#include "kiln/result.h"
#include "util/bytes.h"
#include "util/unique_fd.h"

namespace kiln {

/// Writes all of `bytes` to a descriptor; `path` stands in messages. Errors: kIo.
[[nodiscard]] Result<void> write_all(int fd, ByteView bytes,
                                     const std::filesystem::path& path);

/// Creates a new file; an existing one is an error. A failed write leaves a partial
/// file. Errors: kIo.
[[nodiscard]] Result<void> create_file(const std::filesystem::path& path,
                                       ByteView bytes, mode_t mode);

/// Makes a folder, 0700, one level; one that is there stays as it is. Errors: kIo.
[[nodiscard]] Result<void> make_folder(const std::filesystem::path& path);

/// A new file beside `path`, which takes its place at commit(); until then, and if that
/// is never called, `path` stays as it was. Thread safety: none.
class NewFile {
 public:
  /// Only this user can read it yet. Errors: kIo.
  [[nodiscard]] static Result<NewFile> create(std::filesystem::path path);
  /// Of these bytes; its folder is created, too (0700, one level). Errors: kIo.
  [[nodiscard]] static Result<NewFile> with(const std::filesystem::path& path,
                                            ByteView bytes);
  NewFile(NewFile&& other) noexcept;
  NewFile(const NewFile&) = delete;
  NewFile& operator=(NewFile&&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  [[nodiscard]] int descriptor() const { return file_.get(); }
  /// Not synced: after a power loss the file may be torn. Errors: kIo.
  [[nodiscard]] Result<void> commit(mode_t mode);
  /// As commit(). The file is then at the returned path, until this object ends, that
  /// was at `path` in the last moment, so that the caller can see whether another has
  /// written it; "": there was none, or the file system cannot tell. Errors: kIo, also
  /// for a folder at `path`.
  [[nodiscard]] Result<std::filesystem::path> exchange(mode_t mode);

 private:
  [[nodiscard]] Result<void> close_with(mode_t mode);
  NewFile(std::filesystem::path path, std::string temporary, UniqueFd file);

  const std::filesystem::path path_;
  std::string temporary_;  // empty once it is in place
  UniqueFd file_;
};

/// Replaces `path` atomically: readers see the whole old file or the whole new one, and
/// a failure leaves the old one. Not synced: after a power loss the new file may be
/// torn, so its reader must check it. Creates the folder (0700, one level).
/// Thread-safe, also among processes: the last one wins. Errors: kIo.
[[nodiscard]] Result<void> replace_file(const std::filesystem::path& path,
                                        ByteView bytes, mode_t mode);

}  // namespace kiln
