// Digests and directives of headers by file stamp: in the process and, per list of
// include directories and only where stamps are reliable, in a memo on disk.

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "codec/digest.h"
#include "key/memo_file.h"
#include "kiln/result.h"
#include "util/file_stamp.h"
#include "util/include_directives.h"
#include "util/mutex.h"

namespace kiln::key {

struct HeaderContent {
  Digest digest;
  Directives directives;
  std::uint64_t bytes = 0;
};
using SharedContent = std::shared_ptr<const HeaderContent>;

struct KnownHeader {
  FileStamp stamp;
  SharedContent content;
};

/// What one descriptor read.
struct ReadHeader {
  FileStamp stamp;  // its own: the path may have been another file's before
  SharedContent content;
  bool settled = false;   // is_settled(), and as many bytes as the stamp says
  bool is_steady = true;  // false: it was written to while it was read, at each try
};

/// What of a file is wanted beside its digest.
enum class Scans : std::uint8_t { kDirectives, kNothing };

/// Thread safety: all members may be called concurrently; no lock is held while a file
/// is read or written.
class HeaderStore {
 public:
  explicit HeaderStore(OwnFolder memo_folder, Scans scans = Scans::kDirectives)
      : memo_folder_(std::move(memo_folder)), scans_(scans) {}

  /// Loads the memo of that name, once per process.
  void load(const std::string& memo);
  /// The content last seen with this stamp, or null.
  [[nodiscard]] SharedContent find(const FileStamp& stamp) const;
  /// Reads and scans the file. If it is settled, find() will return it. Errors: as
  /// read_file and find_directives, naming the file; kNotFound if it has disappeared.
  [[nodiscard]] Result<ReadHeader> read(const std::filesystem::path& path,
                                        std::chrono::system_clock::time_point now,
                                        std::uint64_t max_bytes,
                                        const std::stop_token& stop = {});
  /// Writes `used`, all of them settled and reliable, to the memo, in front of the
  /// entries that it already has.
  [[nodiscard]] MemoWrite save(const std::string& memo,
                               const std::vector<KnownHeader>& used) const;

 private:
  // Inodes are spread by a multiplicative hash; ctime distinguishes reused inodes.
  struct StampHash {
    std::size_t operator()(const FileStamp& stamp) const noexcept {
      return static_cast<std::size_t>(stamp.inode * 0x9E3779B97F4A7C15U) ^
             static_cast<std::size_t>(stamp.ctime_ns);
    }
  };

  void keep(const FileStamp& stamp, SharedContent content);

  const OwnFolder memo_folder_;
  const Scans scans_;
  mutable Mutex mutex_;
  std::unordered_map<FileStamp, SharedContent, StampHash> known_
      KILN_GUARDED_BY(mutex_);
  std::set<std::string> loaded_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::key
