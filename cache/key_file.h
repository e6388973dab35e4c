// The file of trusted keys (KILN_REMOTE_KEYS) as a running process has it: the file is
// read again now and then, so that a key which is removed or revoked counts no longer.

#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>

#include "cache/file_system.h"
#include "cache/trust.h"
#include "codec/trusted_keys.h"
#include "kiln/result.h"

namespace kiln::cache {

/// Thread safety: every method may run concurrently.
class KeyFile {
 public:
  using Clock = std::chrono::steady_clock;
  using Keys = std::shared_ptr<const TrustedKeys>;

  /// How long what was read counts, before the file is read again.
  static constexpr std::chrono::seconds kPause{5};

  /// Reads nothing yet. `file_system` must outlive the process where the file is on a
  /// far mount.
  KeyFile(FileSystem& file_system, TrustPolicy trust, const std::filesystem::path& path,
          std::function<Clock::time_point()> now = Clock::now);

  /// The keys; the same pointer as long as they are the same. A file that cannot be
  /// read because of its disk, mount or mode changes nothing, with one warning; one
  /// that is gone, that is malformed or that others could write ends all trust, until
  /// it is good again, and that is logged once. Errors: kNotFound; kUntrusted, if
  /// another user could write it; kInvalidArgument; kResourceLimit; kIo.
  [[nodiscard]] Result<Keys> keys();

 private:
  struct State;
  const std::shared_ptr<State> state_;  // with a call that is left behind
};

/// The keys of `file`; null without a file. Errors: those of KeyFile::keys().
[[nodiscard]] inline Result<KeyFile::Keys> keys_of(
    const std::shared_ptr<KeyFile>& file) {
  return file == nullptr ? KeyFile::Keys() : file->keys();
}

}  // namespace kiln::cache
