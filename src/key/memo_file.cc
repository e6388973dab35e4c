#include "key/memo_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cache/digest.h"
#include "util/log.h"
#include "util/posix_error.h"
#include "util/read_file.h"
#include "util/unique_fd.h"

namespace kiln::key {
namespace {

namespace fs = std::filesystem;

// File: magic, SHA-256 of the payload, payload. The number is the payload's format.
constexpr std::string_view kMagic = "kiln memo 1\n";
constexpr std::size_t kHeadBytes = kMagic.size() + cache::Digest::kSize;
constexpr std::uint64_t kMaxBytes = std::uint64_t{256} << 20U;
constexpr std::size_t kMaxMemos = 256;

bool only_we_can_write(const fs::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 &&
         (info.st_uid == ::geteuid() || info.st_uid == 0) &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool write_all(int file, ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

Result<void> write_temporary(const fs::path& path, ByteView payload) {
  UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file)
    return posix_error("create", path, errno);
  const cache::Digest checksum = cache::Digest::of(payload);
  // No fsync: after a crash the checksum finds what did not reach the disk.
  if (!write_all(file.get(), as_bytes(kMagic)) ||
      !write_all(file.get(), checksum.bytes()) || !write_all(file.get(), payload))
    return posix_error("write", path, errno);
  if (::close(file.release()) != 0)
    return posix_error("close", path, errno);
  return {};
}

// Memos of trees and include directories that nobody uses any more, and temporaries of
// killed processes: all go by age.
void remove_oldest(const fs::path& folder) {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> memos;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;  // gone meanwhile: it sorts first and is removed again
    memos.emplace_back(entry->last_write_time(ignored), entry->path());
  }
  if (memos.size() <= kMaxMemos)
    return;
  std::sort(memos.begin(), memos.end());
  memos.resize(memos.size() - kMaxMemos);
  for (const auto& [time, path] : memos) fs::remove(path, error);
}

Result<void> replace(const fs::path& folder, std::string_view name, ByteView payload) {
  static std::atomic<std::uint64_t> counter = 0;
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return posix_error("create", folder, errno);
  const fs::path temporary =
      folder / ("tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++));
  auto written = write_temporary(temporary, payload);
  if (written && ::rename(temporary.c_str(), (folder / name).c_str()) != 0)
    written = posix_error("rename", temporary, errno);
  if (!written)
    ::unlink(temporary.c_str());
  return written;
}

}  // namespace

std::optional<Bytes> read_memo(const fs::path& folder, std::string_view name) {
  if (folder.empty())
    return std::nullopt;
  const fs::path path = folder / name;
  if (!only_we_can_write(folder) || !only_we_can_write(path))
    return std::nullopt;
  auto bytes = read_file(path, kMaxBytes);
  if (!bytes || !*bytes || (*bytes)->size() < kHeadBytes)
    return std::nullopt;
  const ByteView all = **bytes;
  const ByteView payload = all.subspan(kHeadBytes);
  const ByteView checksum = all.subspan(kMagic.size(), cache::Digest::kSize);
  if (as_text(all.first(kMagic.size())) != kMagic ||
      !std::ranges::equal(checksum, cache::Digest::of(payload).bytes()))
    return std::nullopt;
  (*bytes)->erase((*bytes)->begin(), (*bytes)->begin() + kHeadBytes);
  return std::move(**bytes);
}

MemoWrite write_memo(const fs::path& folder, std::string_view name, ByteView payload) {
  if (folder.empty())
    return MemoWrite::kNotNeeded;
  const auto written = replace(folder, name, payload);
  if (!written) {
    logger().debug("a memo of digests was not kept: {}", written.error().message);
    return MemoWrite::kFailed;
  }
  remove_oldest(folder);
  return MemoWrite::kWritten;
}

}  // namespace kiln::key
