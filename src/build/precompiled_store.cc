#include "build/precompiled_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <tuple>
#include <vector>

#include "cache/layout.h"
#include "codec/field_codec.h"
#include "codec/fields.h"
#include "compile/protocol/protocol.h"
#include "key/memo_file.h"
#include "util/folder_names.h"
#include "util/posix_error.h"
#include "util/try.h"
#include "util/write_file.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;
using FileClock = fs::file_time_type::clock;

constexpr const char* kHeadersName = "headers";  // NVRTC's file
constexpr const char* kRecordName = "record";
constexpr const char* kWanted = ".wanted";
constexpr const char* kTaken = ".taken";
constexpr const char* kRefused = ".refused";
constexpr std::chrono::hours kMarkerAge{7 * 24};
constexpr std::chrono::minutes kTakenAge{10};  // of a maker that was killed, or failed
constexpr std::chrono::hours kUnfinishedAge{1};
/// Twice what NVRTC may write, so that the cache itself never lacks it.
constexpr std::uint64_t kLeastRoomBytes = 1ULL << 30U;

/// Its stamp is that of the worker's descriptor, and is taken anew where the record is
/// used.
constexpr auto kOpenedFields = [](auto& codec, auto& file) {
  auto& [path, stamp] = file;
  codec("path", path);
  std::ignore = stamp;
};

/// find() knows the path. Only what has a whole report is published.
constexpr auto kRecordFields = [](auto& codec, auto& stored) {
  auto& [file, files] = stored;
  auto& [path, bytes, xxh3, nvrtc_address] = file;
  auto& [opened, missed, is_whole] = files;
  codec("bytes", bytes);
  codec("xxh3", xxh3);
  codec("nvrtc_address", nvrtc_address);
  codec.each("opened", opened, kOpenedFields);
  codec("missed", missed);
};

Result<PrecompiledStore::Stored> decode(ByteView bytes) {
  return read_fields<PrecompiledStore::Stored>(
      KILN_TRY(Fields::decode(bytes)), "record of a precompiled header", kRecordFields);
}

/// False for what is not there. What was made while the clock was ahead ages as well.
bool is_younger(const fs::path& path, std::chrono::minutes age) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  return !error && std::chrono::abs(FileClock::now() - time) < age;
}

void touch(const fs::path& path) {
  // On failure the file seems unused, and may be removed sooner.
  std::ignore = ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
}

/// On failure it is as if nobody had asked for it.
void make_marker(const fs::path& path) {
  const int fd = ::open(path.c_str(),
                        O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (fd < 0)
    return;
  ::close(fd);
  touch(path);
}

struct Entry {
  fs::file_time_type used;
  fs::path path;
  std::uint64_t bytes = 0;
};

std::vector<fs::path> paths_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const std::string& name :
       folder_names(folder, [](std::string_view) { return true; }))
    paths.push_back(folder / name);
  return paths;
}

/// The least recently used first.
std::vector<Entry> entries_in(const fs::path& folder) {
  std::vector<Entry> entries;
  for (const fs::path& path : paths_in(folder)) {
    if (!Digest::from_hex(path.filename().native()))
      continue;
    std::error_code error;
    Entry entry{.used = fs::last_write_time(path / kRecordName, error), .path = path};
    const auto bytes = fs::file_size(path / kHeadersName, error);
    entry.bytes = error ? 0 : bytes;
    entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, {}, &Entry::used);
  return entries;
}

}  // namespace

PrecompiledStore::PrecompiledStore(OwnFolder folder, std::uint64_t limit_bytes)
    : folder_(std::move(folder)),
      scratch_(folder_.path() / compile::kScratchName),
      limit_bytes_(limit_bytes) {}

fs::path PrecompiledStore::marker(const Digest& key, const char* ending) const {
  return folder_.path() / (key.hex() + ending);
}

std::optional<PrecompiledStore::Stored> PrecompiledStore::find(
    const Digest& key) const {
  if (!folder_.has(key.hex()).value_or(false))
    return std::nullopt;
  const OwnFolder entry(folder_.path() / key.hex());
  if (!entry.has(kHeadersName).value_or(false))
    return std::nullopt;
  const auto record = key::read_memo(entry, kRecordName);
  auto stored = record ? decode(*record) : fail(ErrorCode::kNotFound, "");
  if (!stored)
    return std::nullopt;
  stored->file.path = entry.path() / kHeadersName;
  // Not `headers` itself: a worker sees that nobody has written to it.
  touch(entry.path() / kRecordName);
  return *std::move(stored);
}

void PrecompiledStore::want(const Digest& key) const {
  std::error_code error;
  if (is_younger(marker(key, kRefused), kMarkerAge) ||
      is_younger(marker(key, kTaken), kTakenAge) || !make_folder(folder_.path()) ||
      !folder_.check() || fs::exists(folder_.path() / key.hex(), error))
    return;
  make_marker(marker(key, kWanted));
}

bool PrecompiledStore::take_wanted(const Digest& key) const {
  const fs::path taken = marker(key, kTaken);
  if (!folder_.check() || ::rename(marker(key, kWanted).c_str(), taken.c_str()) != 0)
    return false;
  touch(taken);
  return true;
}

void PrecompiledStore::release(const Digest& key) const {
  if (folder_.check())
    ::unlink(marker(key, kTaken).c_str());
}

void PrecompiledStore::remove(const Digest& key) const {
  if (folder_.check())
    remove_entry(folder_.path() / key.hex());
}

void PrecompiledStore::refuse(const Digest& key) const {
  if (!folder_.check())
    return;
  remove(key);
  make_marker(marker(key, kRefused));
  release(key);
}

Result<fs::path> PrecompiledStore::new_file() const {
  KILN_TRY(make_folder(folder_.path()));
  KILN_TRY(folder_.check());
  KILN_TRY(make_folder(scratch_));
  KILN_TRY(folder_.has(compile::kScratchName));
  struct statvfs room {};
  if (::statvfs(scratch_.c_str(), &room) != 0)
    return posix_error("statvfs", scratch_, errno);
  if (room.f_bavail * room.f_frsize < kLeastRoomBytes)
    return fail(ErrorCode::kResourceLimit,
                "{} has too little room for precompiled headers", scratch_.native());
  const fs::path folder = cache::Layout::temporary_in(scratch_.native());
  KILN_TRY(make_folder(folder));
  return folder / kHeadersName;
}

Result<void> PrecompiledStore::publish(const Digest& key, const Stored& made) const {
  const fs::path folder = made.file.path.parent_path();
  if (made.file.bytes > limit_bytes_)
    return fail(ErrorCode::kResourceLimit,
                "a precompiled header of {} bytes is over the limit of {}",
                made.file.bytes, limit_bytes_);
  if (::chmod(made.file.path.c_str(), 0400) != 0)
    return posix_error("chmod", made.file.path, errno);
  if (key::write_memo(OwnFolder(folder), kRecordName,
                      fields_of(made, kRecordFields).encode()) !=
      key::MemoWrite::kWritten)
    return fail(ErrorCode::kIo, "{} cannot be written", folder.native());
  // One process gets the name: a folder that is not empty is not replaced.
  const fs::path entry = folder_.path() / key.hex();
  if (::rename(folder.c_str(), entry.c_str()) != 0)
    return posix_error("rename", entry, errno);
  ::unlink(marker(key, kWanted).c_str());
  release(key);
  std::ignore = trim();  // what it removed is nobody's result
  return {};
}

void PrecompiledStore::discard(const fs::path& file) const {
  std::error_code error;  // a later trim() removes what is left
  fs::remove_all(file.parent_path(), error);
}

/// Out of sight at once; a process that has mapped the file keeps it.
void PrecompiledStore::remove_entry(const fs::path& entry) const {
  const fs::path aside = cache::Layout::temporary_in(scratch_.native());
  std::error_code error;
  if (::rename(entry.c_str(), aside.c_str()) == 0)
    fs::remove_all(aside, error);
}

PrecompiledTotals PrecompiledStore::trim(cache::DryRun dry_run) const {
  PrecompiledTotals removed;
  if (folder_.empty() || !folder_.check())
    return removed;
  auto entries = entries_in(folder_.path());
  std::uint64_t bytes = 0;
  for (const Entry& entry : entries) bytes += entry.bytes;
  for (const Entry& entry : entries) {
    if (bytes <= limit_bytes_)
      break;
    if (dry_run == cache::DryRun::kNo)
      remove_entry(entry.path);
    bytes -= entry.bytes;
    ++removed.entries;
    removed.bytes += entry.bytes;
  }
  if (dry_run == cache::DryRun::kYes)
    return removed;
  std::error_code error;
  for (const fs::path& path : paths_in(folder_.path())) {
    const bool is_marker = path.extension() == kWanted || path.extension() == kTaken ||
                           path.extension() == kRefused;
    if (is_marker && !is_younger(path, kMarkerAge))
      fs::remove(path, error);
  }
  for (const fs::path& path : paths_in(scratch_)) {
    if (cache::Layout::is_temporary(path.filename().native()) &&
        !is_younger(path, kUnfinishedAge))
      fs::remove_all(path, error);
  }
  return removed;
}

PrecompiledTotals PrecompiledStore::totals() const {
  PrecompiledTotals totals;
  for (const Entry& entry : entries_in(folder_.path())) {
    ++totals.entries;
    totals.bytes += entry.bytes;
  }
  for (const fs::path& path : paths_in(scratch_)) {
    std::error_code error;
    const auto bytes = fs::file_size(path / kHeadersName, error);
    totals.bytes += error ? 0 : bytes;
  }
  return totals;
}

PrecompiledTotals PrecompiledStore::clear() const {
  if (folder_.empty() || !folder_.check())
    return {};
  const PrecompiledTotals removed = totals();
  std::error_code error;
  fs::remove_all(folder_.path(), error);
  return removed;
}

}  // namespace kiln
