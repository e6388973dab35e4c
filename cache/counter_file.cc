#include "cache/counter_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>

#include "cache/lock_folder.h"
#include "cache/owned_range.h"
#include "util/bytes.h"
#include "util/far_mount.h"
#include "util/posix_error.h"
#include "util/text.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln::cache {
namespace {

using Counts = CounterFile::Counts;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kFirstLine = "kiln counters 1\n";
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kMaxBytes = 16 * kPageBytes;
constexpr std::uint64_t kLockBytes = 1;
constexpr LockTimes kPauses{.longest_pause = std::chrono::milliseconds(4)};
constexpr int kCounterFileFlags = O_RDWR | kNoLinkFlags;

bool is_name(std::string_view text) {
  return !text.empty() && text.find_first_not_of(
                              "abcdefghijklmnopqrstuvwxyz0123456789_.:[]-"
                              "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string_view::npos;
}

/// Reads one line into `counts`; skips a malformed one.
void decode_line(std::string_view line, Counts& counts) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || !is_name(line.substr(0, space)))
    return;
  const auto value = number_of<std::uint64_t>(line.substr(space + 1));
  if (!value)
    return;
  // Only a damaged file has a name twice.
  std::uint64_t& count = counts[std::string(line.substr(0, space))];
  count = std::max(count, *value);
}

Counts decode(std::string_view text) {
  Counts counts;
  if (!text.starts_with(kFirstLine))
    return counts;
  text.remove_prefix(kFirstLine.size());
  // A line without a newline was cut off, and its number may be, too: it is skipped.
  for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos;
       text.remove_prefix(end + 1))
    decode_line(text.substr(0, end), counts);
  return counts;
}

std::string encode(const Counts& counts) {
  std::string text(kFirstLine);
  for (const auto& [name, count] : counts)
    fmt::format_to(std::back_inserter(text), "{} {}\n", name, count);
  return text;
}

/// Pads to whole pages, so that growing counts need no room on a full disk, and at
/// least to `old_size`, so that no old text remains at the end.
void pad(std::string& text, std::size_t old_size) {
  const std::size_t pages = (text.size() + kPageBytes - 1) / kPageBytes;
  const std::size_t size = std::max(pages * kPageBytes, old_size);
  if (text.size() == size)
    return;
  text.resize(size - 1, ' ');
  text += '\n';
}

}  // namespace

CounterFile::CounterFile(std::filesystem::path path, FileSystem& file_system,
                         const TrustPolicy& trust, Folder folder)
    : path_(std::move(path)),
      file_system_(file_system),
      trust_(trust),
      folder_(folder) {}

Result<std::filesystem::path> CounterFile::made() const {
  if (folder_ == Folder::kOfNode)
    KILN_TRY(make_node_folder(file_system_, trust_, path_.parent_path()));
  return path_;
}

Counts CounterFile::sum(Counts counts, const Counts& more) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  for (const auto& [name, n] : more) {
    std::uint64_t& count = counts[name];
    count += std::min(n, kMost - count);
  }
  return counts;
}

Result<void> CounterFile::add(const Counts& counts, std::chrono::milliseconds limit) {
  if (counts.empty())
    return {};
  KILN_TRY(made());
  const int fd = file_system_.open(path_.c_str(), kCounterFileFlags | O_CREAT, 0600);
  if (fd < 0)
    return open_error(fd);
  const UniqueFd closer(fd);
  KILN_TRY(check(fd));
  KILN_TRY(lock(fd, limit));
  auto added = add_locked(fd, counts);
  unlock(fd);
  return added;
}

Result<Counts> CounterFile::read(std::chrono::milliseconds limit) {
  if (folder_ == Folder::kOfNode) {
    if (far_mount_of(path_))  // it may be dead
      return Counts{};
    KILN_TRY(trust_.check_path(file_system_, path_));
  }
  const int fd = file_system_.open(path_.c_str(), kCounterFileFlags, 0);
  if (fd == -ENOENT)
    return Counts{};
  if (fd < 0)
    return open_error(fd);
  const UniqueFd closer(fd);
  KILN_TRY(check(fd));
  // Without the lock a line may be torn; that is better than no counts.
  const bool locked = lock(fd, limit).has_value();
  const auto there = text(fd);
  if (locked)
    unlock(fd);
  return there.map([](const std::string& lines) { return decode(lines); });
}

tl::unexpected<Error> CounterFile::refused() const {
  return fail(ErrorCode::kUntrusted, "{} is not a file of this user alone: delete it",
              path_.native());
}

tl::unexpected<Error> CounterFile::open_error(int err) const {
  if (trust_.refuses(file_system_, path_))
    return refused();
  return posix_error("open", path_, -err);
}

Result<void> CounterFile::check(int fd) const {
  struct stat info {};
  if (const int err = file_system_.fstat(fd, info); err != 0)
    return posix_error("stat", path_, -err);
  if (!trust_.accepts_file(info))
    return refused();
  return {};
}

Result<void> CounterFile::lock(int fd, std::chrono::milliseconds limit) const {
  const auto deadline = Clock::now() + limit;
  std::optional<BackOff> pause;
  for (;;) {
    const int err = file_system_.set_lock(fd, RangeLock::kExclusive, 0, kLockBytes);
    if (err >= 0)
      return {};
    if (err != -EAGAIN && err != -EACCES)
      return posix_error("lock", path_, -err);
    const std::chrono::nanoseconds left = deadline - Clock::now();
    if (left.count() <= 0)
      return fail(ErrorCode::kUnavailable, "{} is held by another process",
                  path_.native());
    if (!pause)
      pause.emplace(kPauses);
    std::this_thread::sleep_for(std::min(pause->next(), left));
  }
}

/// Explicit, because close() alone leaves the file locked while a forked child has a
/// copy of the descriptor. If it fails, other processes go on without counting.
void CounterFile::unlock(int fd) const {
  std::ignore = file_system_.set_lock(fd, RangeLock::kUnlock, 0, kLockBytes);
}

/// Bytes beyond kMaxBytes are not ours and are not read.
Result<std::string> CounterFile::text(int fd) const {
  Bytes bytes(kMaxBytes);
  const ssize_t n = pread_all(file_system_, fd, bytes.data(), bytes.size(), 0);
  if (n < 0)
    return posix_error("read", path_, static_cast<int>(-n));
  return std::string(as_text(ByteView(bytes).first(static_cast<std::size_t>(n))));
}

Result<void> CounterFile::add_locked(int fd, const Counts& counts) const {
  std::string before = KILN_TRY(text(fd));
  std::string after = encode(sum(decode(before), counts));
  if (after.size() > kMaxBytes)
    after = encode(counts);  // the file was full of unknown names
  pad(after, before.size());
  const ssize_t n = file_system_.pwrite(fd, as_bytes(after), 0);
  if (n == static_cast<ssize_t>(after.size()))
    return {};
  if (n < 0)
    return posix_error("write", path_, static_cast<int>(-n));
  // The disk is full. Restore the old text, so that nothing is added twice; if that
  // fails, too, the complete lines still count.
  before.resize(std::max(before.size(), static_cast<std::size_t>(n)), ' ');
  std::ignore = file_system_.pwrite(fd, as_bytes(before), 0);
  return posix_error("write", path_, ENOSPC);
}

}  // namespace kiln::cache
