#include "tests/fault/power_loss/recording_file_system.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <utility>

#include "cache/unix_time.h"
#include "util/read_file.h"

namespace kiln::test {
namespace {

using Kind = Operation::Kind;

constexpr std::uint64_t kMaxRecordedBytes = 64ULL << 20U;

}  // namespace

RecordingFileSystem::RecordingFileSystem(std::filesystem::path root, Syncs syncs,
                                         cache::FileSystem& below)
    : root_(std::move(root)), syncs_(syncs), below_(below), before_(Disk::read(root_)) {
  for (const auto& [number, file] : before_.files) numbers_[number] = number;
}

Log RecordingFileSystem::log() const {
  const MutexLock lock(mutex_);
  return log_;
}

void RecordingFileSystem::acknowledge(int object) {
  const MutexLock lock(mutex_);
  log_.push_back(
      {.kind = Kind::kAcknowledge, .offset = static_cast<std::uint64_t>(object)});
}

/// None for what does not lie below the root.
std::optional<std::string> RecordingFileSystem::relative(const char* path) const {
  const std::string below = std::filesystem::path(path).lexically_relative(root_);
  if (below.empty() || below.starts_with(".."))
    return std::nullopt;
  return below == "." ? std::string() : below;
}

int RecordingFileSystem::open(const char* path, int flags, mode_t mode) {
  const MutexLock lock(mutex_);
  const auto name = relative(path);
  struct stat info {};
  const bool is_new = below_.lstat(path, info) != 0;
  const int fd = below_.open(path, flags, mode);
  const bool for_writing = (flags & O_ACCMODE) != O_RDONLY;
  if (fd < 0 || !name || (!for_writing && (flags & O_DIRECTORY) == 0))
    return fd;
  EXPECT_EQ(flags & (O_TRUNC | O_APPEND), 0) << path << ": not in the model";
  note_open(fd, *name, is_new);
  return fd;
}

void RecordingFileSystem::note_open(int fd, const std::string& name, bool is_new) {
  struct stat info {};
  EXPECT_EQ(below_.fstat(fd, info), 0);
  if (S_ISDIR(info.st_mode)) {
    opened_[fd] = {std::nullopt, name, 0};
    return;
  }
  if (is_new) {
    numbers_[info.st_ino] = next_++;
    log_.push_back({.kind = Kind::kCreate,
                    .file = numbers_[info.st_ino],
                    .name = name,
                    .mode = info.st_mode & 07777U});
  }
  opened_[fd] = {number_of((root_ / name).c_str(), name), name, 0};
}

/// Of the file at `path`. One that was made and written past this file system, as
/// SQLite does, enters the log as a file called `name`, never synced.
FileNumber RecordingFileSystem::number_of(const char* path, const std::string& name) {
  struct stat info {};
  EXPECT_EQ(below_.lstat(path, info), 0) << path;
  if (const auto known = numbers_.find(info.st_ino); known != numbers_.end())
    return known->second;
  const FileNumber number = numbers_[info.st_ino] = next_++;
  log_.push_back({.kind = Kind::kCreate,
                  .file = number,
                  .name = name,
                  .mode = info.st_mode & 07777U});
  log_.push_back({.kind = Kind::kWrite,
                  .file = number,
                  .bytes = read_file(path, kMaxRecordedBytes).value().value()});
  return number;
}

void RecordingFileSystem::note_written(int fd, ByteView bytes, std::uint64_t offset) {
  const auto opened = opened_.find(fd);
  if (opened == opened_.end())
    return;
  log_.push_back({.kind = Kind::kWrite,
                  .file = opened->second.file.value(),
                  .offset = offset,
                  .bytes = Bytes(bytes.begin(), bytes.end())});
}

ssize_t RecordingFileSystem::write(int fd, ByteView bytes) {
  const MutexLock lock(mutex_);
  const ssize_t n = below_.write(fd, bytes);
  const auto opened = opened_.find(fd);
  if (n <= 0 || opened == opened_.end())
    return n;
  note_written(fd, bytes.first(static_cast<std::size_t>(n)), opened->second.offset);
  opened->second.offset += static_cast<std::size_t>(n);
  return n;
}

ssize_t RecordingFileSystem::pwrite(int fd, ByteView bytes, std::uint64_t offset) {
  const MutexLock lock(mutex_);
  const ssize_t n = below_.pwrite(fd, bytes, offset);
  if (n > 0)
    note_written(fd, bytes.first(static_cast<std::size_t>(n)), offset);
  return n;
}

int RecordingFileSystem::fdatasync(int fd) {
  const MutexLock lock(mutex_);
  if (syncs_ == Syncs::kDropped)
    return 0;
  const int err = below_.fdatasync(fd);
  const auto opened = opened_.find(fd);
  if (err != 0 || opened == opened_.end())
    return err;
  const auto& [file, name, offset] = opened->second;
  log_.push_back({.kind = file ? Kind::kSyncFile : Kind::kSyncFolder,
                  .file = file.value_or(0),
                  .name = name});
  return 0;
}

int RecordingFileSystem::fchmod(int fd, mode_t mode) {
  const MutexLock lock(mutex_);
  const int err = below_.fchmod(fd, mode);
  const auto opened = opened_.find(fd);
  if (err == 0 && opened != opened_.end())
    log_.push_back(
        {.kind = Kind::kMode, .file = opened->second.file.value(), .mode = mode});
  return err;
}

int RecordingFileSystem::touch(int fd) {
  const MutexLock lock(mutex_);
  const int err = below_.touch(fd);
  struct stat info {};
  // A hit touches a file that it opened for reading, so that the inode has to do.
  if (err != 0 || below_.fstat(fd, info) != 0 || !numbers_.contains(info.st_ino))
    return err;
  log_.push_back({.kind = Kind::kTime,
                  .file = numbers_[info.st_ino],
                  .mtime_ns = cache::to_ns(info.st_mtim)});
  return 0;
}

int RecordingFileSystem::close(int fd) {
  const MutexLock lock(mutex_);
  opened_.erase(fd);
  return below_.close(fd);
}

int RecordingFileSystem::link(const char* from, const char* to) {
  const MutexLock lock(mutex_);
  const int err = below_.link(from, to);
  const auto name = relative(from);
  const auto other = relative(to);
  EXPECT_EQ(name.has_value(), other.has_value()) << "a link across the root";
  if (err == 0 && name)
    log_.push_back({.kind = Kind::kLink,
                    .file = number_of(to, *name),
                    .name = *name,
                    .to = *other});
  return err;
}

int RecordingFileSystem::unlink(const char* path) {
  const MutexLock lock(mutex_);
  struct stat info {};
  const bool is_last = below_.lstat(path, info) == 0 && info.st_nlink == 1;
  const int err = below_.unlink(path);
  const auto name = relative(path);
  if (err != 0 || !name)
    return err;
  log_.push_back({.kind = Kind::kUnlink, .name = *name});
  if (is_last)
    numbers_.erase(info.st_ino);  // the next file may get it
  return 0;
}

int RecordingFileSystem::note_rename(const char* from, const char* to,
                                     int (FileSystem::*call)(const char*,
                                                             const char*)) {
  const MutexLock lock(mutex_);
  const int err = (below_.*call)(from, to);
  const auto name = relative(from);
  const auto other = relative(to);
  EXPECT_EQ(name.has_value(), other.has_value()) << "a rename across the root";
  if (err != 0 || !name)
    return err;
  const FileNumber file = number_of(to, *name);
  log_.push_back({.kind = Kind::kRename, .file = file, .name = *name, .to = *other});
  return 0;
}

int RecordingFileSystem::rename(const char* from, const char* to) {
  return note_rename(from, to, &FileSystem::rename);
}

int RecordingFileSystem::rename_no_replace(const char* from, const char* to) {
  return note_rename(from, to, &FileSystem::rename_no_replace);
}

int RecordingFileSystem::mkdir(const char* path, mode_t mode) {
  const MutexLock lock(mutex_);
  const int err = below_.mkdir(path, mode);
  if (const auto name = relative(path); err == 0 && name)
    log_.push_back({.kind = Kind::kMakeFolder, .name = *name});
  return err;
}

}  // namespace kiln::test
