// A small file that remembers digests between processes, in `<cache root>/memo`. It
// only saves work: a missing, damaged or foreign one is a miss, a failed write is
// counted and nothing else.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "util/bytes.h"
#include "util/own_path.h"

namespace kiln::key {

enum class MemoWrite : std::uint8_t {
  kNotNeeded,  // nothing new, or no memo folder
  kWritten,
  kFailed,  // full disk, read-only cache, ...: logged at level debug
};

/// The payload that write_memo() gave `name`, or nullopt: no such file, another
/// format, a checksum that does not fit, or a file that somebody other than this user
/// or root owns or can write. Thread-safe.
[[nodiscard]] std::optional<Bytes> read_memo(const OwnFolder& folder,
                                             std::string_view name);

/// Replaces the memo atomically; the last writer wins. Makes the folder (0700), and
/// keeps it from growing: the oldest memos go beyond 256. Thread-safe.
[[nodiscard]] MemoWrite write_memo(const OwnFolder& folder, std::string_view name,
                                   ByteView payload);

}  // namespace kiln::key
