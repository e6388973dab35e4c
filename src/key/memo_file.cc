#include "key/memo_file.h"

#define XXH_INLINE_ALL
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "util/little_endian.h"
#include "util/log.h"
#include "util/posix_error.h"
#include "util/try.h"
#include "util/write_file.h"

namespace kiln::key {
namespace {

namespace fs = std::filesystem;

// File: magic, XXH3-64 of the payload, payload. The number is the format of the file.
constexpr std::string_view kMagic = "kiln memo 2\n";
constexpr std::size_t kHeadBytes = kMagic.size() + sizeof(std::uint64_t);
constexpr std::uint64_t kMaxBytes = std::uint64_t{256} << 20U;

// Against accidents only: read_memo() refuses a file that others can change.
std::uint64_t checksum(ByteView payload) {
  return XXH3_64bits(payload.data(), payload.size());
}

// Memos of trees and include directories that are no longer used, and temporaries of
// killed processes.
void remove_oldest(const fs::path& folder, const MemosKept& kept) {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> memos;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;  // it has disappeared: sorts first; no harm in removing it
    memos.emplace_back(entry->last_write_time(ignored), entry->path());
  }
  std::sort(memos.rbegin(), memos.rend());
  const auto oldest = fs::file_time_type::clock::now() - kept.age;
  for (std::size_t i = 0; i < memos.size(); ++i) {
    if (i >= kept.newest || memos[i].first < oldest)
      fs::remove(memos[i].second, error);
  }
}

}  // namespace

std::optional<Bytes> read_memo(const OwnFolder& folder, std::string_view name) {
  auto bytes = folder.read(name, kMaxBytes);
  if (!bytes || bytes->size() < kHeadBytes)
    return std::nullopt;
  const ByteView all = *bytes;
  const ByteView payload = all.subspan(kHeadBytes);
  if (as_text(all.first(kMagic.size())) != kMagic ||
      load_le<std::uint64_t>(all, kMagic.size()) != checksum(payload))
    return std::nullopt;
  bytes->erase(bytes->begin(), bytes->begin() + kHeadBytes);
  return bytes;
}

MemoWrite write_memo(const OwnFolder& folder, std::string_view name, ByteView payload,
                     const MemosKept& kept) {
  if (folder.empty())
    return MemoWrite::kNotNeeded;
  Bytes file;
  file.reserve(kHeadBytes + payload.size());
  append(file, as_bytes(kMagic));
  append_le(file, checksum(payload));
  append(file, payload);
  const auto written = folder.check().and_then(
      [&] { return replace_file(folder.path() / name, file, S_IRUSR | S_IWUSR); });
  if (!written) {
    log(LogLevel::kDebug,
        {"the memo ", name, " was not kept: ", written.error().message});
    return MemoWrite::kFailed;
  }
  remove_oldest(folder.path(), kept);
  return MemoWrite::kWritten;
}

Result<void> clear_memos(const OwnFolder& folder) {
  KILN_TRY(folder.check());
  std::error_code error;
  fs::remove_all(folder.path(), error);
  if (error)
    return posix_error("remove", folder.path(), error.value());
  return {};
}

}  // namespace kiln::key
