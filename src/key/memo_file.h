// A small file that remembers something between processes: digests of headers in
// `<cache root>/memo`, failures in the lock folder. It only saves work: a missing,
// damaged or foreign memo is a miss, and a failed write is only counted.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kiln/result.h"
#include "util/bytes.h"
#include "util/own_path.h"

namespace kiln::key {

enum class MemoWrite : std::uint8_t {
  kNotNeeded,  // nothing new, or no memo folder
  kWritten,
  kFailed,  // full disk, read-only cache, ...: logged at level debug
};

/// The payload that write_memo() stored as `name`, or nullopt: no such file, another
/// format, a wrong checksum, or a file that `folder` refuses because another user owns
/// or can write it. Thread-safe.
[[nodiscard]] std::optional<Bytes> read_memo(const OwnFolder& folder,
                                             std::string_view name);

/// Which memos stay in a folder.
struct MemosKept {
  std::size_t newest = 256;
  std::chrono::seconds age = std::chrono::years(1);
};

/// Replaces the memo atomically; the last writer wins. Creates the folder (0700), and
/// removes what is not `kept`. Thread-safe.
[[nodiscard]] MemoWrite write_memo(const OwnFolder& folder, std::string_view name,
                                   ByteView payload, const MemosKept& kept = {});

/// Removes the folder with every memo in it. Errors: kIo; those of OwnFolder::check().
[[nodiscard]] Result<void> clear_memos(const OwnFolder& folder);

}  // namespace kiln::key
