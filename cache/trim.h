// Keeps a cache root under its size limit and deletes files that crashes left behind.

#pragma once

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <vector>

#include "cache/counters.h"
#include "cache/file_system.h"
#include "cache/layout.h"
#include "cache/object_store.h"
#include "codec/digest.h"
#include "kiln/result.h"

namespace kiln::cache {

enum class DryRun : std::uint8_t { kNo, kYes };

struct TrimOptions {
  std::uint64_t limit_bytes = kDefaultLimitBytes;
  unsigned target_percent = 90;          // of the limit, once it is exceeded
  unsigned files_percent = 50;           // of that, for objects of kind files
  std::chrono::seconds minimum_age{60};  // objects used more recently stay
  std::chrono::hours orphan_age{1};      // of temporaries
  std::chrono::hours quarantine_age{7 * 24};
  std::size_t quarantine_count = 100;
  unsigned quarantine_percent = 10;  // of the limit, for its files together
  DryRun dry_run = DryRun::kNo;
  std::stop_token stop{};  // ends it early; what was removed stays removed
};

struct TrimResult {
  std::uint64_t removed = 0;
  std::uint64_t freed_bytes = 0;
  std::vector<Digest> removed_keys;
  std::uint64_t entries_left = 0;
  std::uint64_t bytes_left = 0;
  std::uint64_t orphans_swept = 0;  // temporaries and old quarantine
};

/// Evicts objects, the least recently used (by modification time) first, until the rest
/// fits: first of other programs' files, which must not drive out kernels. Walks the
/// objects, so that a wrong index deletes nothing. Checks each file again before
/// deleting it, and keeps it if it was used or replaced meanwhile. Touches only names
/// of our own patterns. The caller ensures one collector at a time; two are safe, but
/// remove more than needed. Errors: kIo, if no folder can be read.
[[nodiscard]] Result<TrimResult> trim(const Layout& layout, FileSystem& file_system,
                                      const ObjectStore& store, Counters& counters,
                                      const TrimOptions& options);

}  // namespace kiln::cache
