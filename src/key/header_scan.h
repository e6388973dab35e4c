// Finds the headers that a raw source can reach, without a compiler: every branch is
// scanned, and each #include is looked up where NVRTC will look it up.
//
// NVRTC's order, observed with 13.0: a header in memory of exactly that name, from any
// file; for "x" the folder of the including file, which for the source and for headers
// in memory is relative to the working directory; each -I in order.
//
// Kiln's standard headers (<limits>, <cstdint>, ...: libcu++'s under the names that
// NVRTC lacks) are the last folder, and only for a source that can reach one of them:
// no other source's key has anything of them.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>

#include "key/header_snapshot.h"
#include "key/key.h"
#include "key/memo_file.h"
#include "kiln/result.h"

namespace kiln::key {

/// What one scan may look at. Over a limit it ends with an error that names it.
struct HeaderScanLimits {
  std::size_t files = 20'000;
  std::uint64_t file_bytes = kMaxHeaderBytes;
  std::uint64_t bytes = std::uint64_t{512} << 20U;  // source and headers together
  std::size_t edges = 1'000'000;                    // include directives
  // Look-ups for operands that are macros. No error: what is not guessed is not stored.
  std::size_t guesses = 100'000;
};

/// Counters of one scan.
struct HeaderScanStats {
  std::size_t files_read = 0;    // hashed and scanned; the rest came from memos
  std::size_t toolkit_read = 0;  // the same for the toolkit's tree
  MemoWrite memo = MemoWrite::kNotNeeded;
  MemoWrite toolkit_memo = MemoWrite::kNotNeeded;
};

struct HeaderScan {
  std::shared_ptr<const HeaderSnapshot> headers;  // never null
  HeaderScanStats stats;
};

/// Remembers contents by file stamp: in the process, and on disk where it is reliable.
/// Thread safety: all members may be called concurrently. Holds no lock while it reads
/// files.
class HeaderScanner {
 public:
  /// `memo_folder` is `<cache root>/memo`; empty: remember in the process only.
  explicit HeaderScanner(const OwnFolder& memo_folder, HeaderScanLimits limits = {});
  ~HeaderScanner();
  HeaderScanner(const HeaderScanner&) = delete;
  HeaderScanner& operator=(const HeaderScanner&) = delete;

  /// Scans a normalized() input. `toolkit_folders` are searched last, in this order,
  /// and behind them `standard_headers` ("": there are none; see HeaderSnapshot). The
  /// digest of a whole tree stands for every file in it (see ToolkitFolders); trees are
  /// read only if the source can reach them. The compiler must get the same include
  /// directories, then those folders, must run in the working directory and without
  /// NVRTC_APPEND_FLAGS in its environment. An operand that is found nowhere is not an
  /// error: it enters the key, so that a header that appears later changes the key.
  /// Cost: linear in the bytes of all texts. Errors: kInvalidArgument (not normalized),
  /// kResourceLimit (a limit above, or one of find_directives), kCancelled soon after
  /// `stop` is requested, kIo (reading a header or the toolkit's tree failed; files
  /// without read permission are skipped, as the compiler does). `now` is for tests of
  /// is_settled().
  [[nodiscard]] Result<HeaderScan> scan(
      const SourceKeyInput& input,
      std::span<const std::filesystem::path> toolkit_folders,
      const std::filesystem::path& standard_headers = {},
      std::chrono::system_clock::time_point now = std::chrono::system_clock::now(),
      const std::stop_token& stop = {}) const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace kiln::key
