// ObjectStore::publish: write a private temporary, sync it, close it, link it to its
// name, unlink the temporary. A crash anywhere leaves the object absent or whole, and
// at worst a temporary that trim sweeps.

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <tuple>
#include <utility>

#include "cache/object_store.h"
#include "util/posix_error.h"

namespace kiln::cache {
namespace {

constexpr int kMaxLinkTries = 5;
constexpr mode_t kWritingMode = 0600;
constexpr mode_t kFinalMode = 0444;

/// Unlinks the temporary in the end, whether it got its final name or not.
class Rollback {
 public:
  Rollback(FileSystem& file_system, const std::string& path)
      : file_system_(file_system), path_(path) {}
  Rollback(const Rollback&) = delete;
  Rollback& operator=(const Rollback&) = delete;
  ~Rollback() {
    // If it fails, trim finds the file; after a rename there is nothing to unlink.
    std::ignore = file_system_.unlink(path_.c_str());
  }

 private:
  FileSystem& file_system_;
  const std::string& path_;
};

bool has_no_hard_links(int err) {
  return err == -EPERM || err == -EOPNOTSUPP || err == -ENOSYS || err == -EMLINK ||
         err == -EXDEV || err == -EINVAL;
}

PublishResult not_stored(Error error) {
  return {Published::kNotStored, std::move(error), 0};
}

}  // namespace

PublishResult ObjectStore::publish(const NewObject& object) const {
  auto ours = StoredObject::make(object);
  if (!ours)
    return not_stored(std::move(ours).error());
  return publish(*ours);
}

PublishResult ObjectStore::publish(const StoredObject& ours) const {
  if (options_.access == Access::kReadOnly) {
    return not_stored({ErrorCode::kUnavailable,
                       fmt::format("{} is read-only", layout_.root().native())});
  }
  if (options_.payload_check) {
    if (auto checked = options_.payload_check(ours); !checked)
      return not_stored(std::move(checked).error());
  }
  PublishResult result = publish_checked(ours);
  // A collector whose clock is ahead took the temporary for an orphan: publish again.
  if (result.temporary_lost)
    result = publish_checked(ours);
  result.file_bytes = ours.file().size();
  if (result.outcome == Published::kStored)
    counters_.add(Counter::kPublished);
  if (result.outcome == Published::kAlreadyThere)
    counters_.add(Counter::kAlreadyThere);
  if (result.outcome == Published::kNondeterministic)
    counters_.add(Counter::kNondeterministic);
  return result;
}

PublishResult ObjectStore::refuse(std::string_view call, const std::string& path,
                                  int err) const {
  counters_.add_publish_refused(-err);
  return not_stored(posix_error(call, path, -err).value());
}

/// Refuses to write through a link, or where others could delete the file.
std::optional<PublishResult> ObjectStore::refuse_folder(
    const std::string& folder) const {
  struct stat info {};
  const int err = file_system_.lstat(folder.c_str(), info);
  if (err != 0 || accepts_folder(info))
    return std::nullopt;  // open_temporary() creates a missing folder
  counters_.add(Counter::kUntrusted);
  return not_stored(
      {ErrorCode::kUntrusted,
       fmt::format("{} is not a folder that only you, root or a trusted user can write "
                   "(owner {}, mode {:04o})",
                   folder, info.st_uid, info.st_mode & 07777U)});
}

int ObjectStore::open_temporary(const std::string& folder, std::string& path) const {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  path = Layout::temporary_in(folder);
  const int fd = file_system_.open(path.c_str(), kFlags, kWritingMode);
  if (fd != -ENOENT)
    return fd;
  if (const int err = make_folders(file_system_, folder); err != 0)
    return err;
  return file_system_.open(path.c_str(), kFlags, kWritingMode);
}

PublishResult ObjectStore::publish_checked(const StoredObject& ours) const {
  const std::string folder =
      layout_.object_folder(std::to_integer<unsigned>(ours.key().bytes()[0]));
  if (auto refused = refuse_folder(folder))
    return *std::move(refused);
  // Such as on a second unpack: that costs no write then.
  struct stat info {};
  if (file_system_.lstat(layout_.object(ours.key()).c_str(), info) == 0) {
    if (auto result = compare_with_existing(ours))
      return *std::move(result);
  }
  std::string temporary;
  const int fd = open_temporary(folder, temporary);
  if (fd < 0)
    return refuse("create", temporary, fd);
  const Rollback rollback(file_system_, temporary);
  std::string_view call = "write";
  int err = write_all(file_system_, fd, ours.file());
  if (err == 0 && options_.sync == Sync::kData) {
    call = "fdatasync";
    err = file_system_.fdatasync(fd);
  }
  if (err == 0) {
    call = "fchmod";
    err = file_system_.fchmod(fd, kFinalMode);
  }
  // NFS says only here that the disk or the quota is full.
  if (const int closed = file_system_.close(fd); err == 0 && closed != 0) {
    call = "close";
    err = closed;
  }
  if (err != 0)
    return refuse(call, temporary, err);
  return link_object(ours, temporary);
}

PublishResult ObjectStore::link_object(const StoredObject& ours,
                                       const std::string& temporary) const {
  const std::string path = layout_.object(ours.key());
  for (int i = 0; i < kMaxLinkTries; ++i) {
    const int err = link_or_rename(temporary, path);
    if (err == 0)
      return {Published::kStored, {}, 0};
    if (err != -EEXIST) {
      PublishResult refused = refuse("link", path, err);
      refused.temporary_lost = err == -ENOENT;
      return refused;
    }
    if (auto result = compare_with_existing(ours))
      return *std::move(result);
  }
  return refuse("link", path, -EEXIST);
}

int ObjectStore::link_or_rename(const std::string& temporary,
                                const std::string& path) const {
  const int linked = file_system_.link(temporary.c_str(), path.c_str());
  if (linked == 0)
    return 0;
  // NFS may have linked it, lost the reply, and answered the retry with EEXIST.
  struct stat info {};
  if (file_system_.lstat(temporary.c_str(), info) == 0 && info.st_nlink == 2)
    return 0;
  if (!has_no_hard_links(linked))
    return linked;
  const int moved = file_system_.rename_no_replace(temporary.c_str(), path.c_str());
  if (moved == 0 || moved == -EEXIST)
    return moved;
  if (!has_no_hard_links(moved))
    return moved;
  // The last resort may replace an object that appears in between; ours is as good.
  if (file_system_.lstat(path.c_str(), info) == 0)
    return -EEXIST;
  return file_system_.rename(temporary.c_str(), path.c_str());
}

std::optional<PublishResult> ObjectStore::compare_with_existing(
    const StoredObject& ours) const {
  Opened other = open_checked(ours.key(), Touch::kNo);
  if (other.object)
    return PublishResult{other.object->same_build(ours) ? Published::kAlreadyThere
                                                        : Published::kNondeterministic,
                         {},
                         0};
  if (auto refused = other.refusal())
    return not_stored(*std::move(refused));
  return std::nullopt;  // gone, or in quarantine by now: link ours again
}

}  // namespace kiln::cache
