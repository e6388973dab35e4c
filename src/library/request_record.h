// KILN_RECORD: records a program's requests in a manifest for `kiln warm`.

#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <unordered_set>

#include "codec/digest.h"
#include "device/architecture.h"
#include "kiln/request.h"
#include "kiln/result.h"
#include "toolchain/toolchain.h"
#include "util/kept_fd.h"
#include "util/mutex.h"

namespace kiln {

/// Thread safety: add() may run concurrently, and other processes may add to the file:
/// each line is one write to the end of it.
class RequestRecord {
 public:
  /// Opens `path` for appending, or creates it with mode 0644 less the umask. Errors:
  /// kIo, naming path and errno; anything but a regular file is refused.
  [[nodiscard]] static Result<std::unique_ptr<RequestRecord>> open(
      const std::filesystem::path& path);

  /// Adds a line unless this process has already added one for `key`. Folders become
  /// absolute; a request as NVRTC's tells `toolchain`, and this program. The first
  /// request that cannot be recorded is logged: JSON cannot represent it, or the write
  /// failed.
  void add(const Digest& key, const Request& request, device::Target target,
           const device::Toolchain& toolchain);

 private:
  RequestRecord(KeptFd file, std::filesystem::path path);
  [[nodiscard]] Result<void> write(const Request& request, device::Target target,
                                   const device::Toolchain& toolchain)
      KILN_REQUIRES(mutex_);

  // Constant after construction.
  const KeptFd file_;
  const std::filesystem::path path_;

  Mutex mutex_;
  std::unordered_set<Digest> known_ KILN_GUARDED_BY(mutex_);
  bool warned_ KILN_GUARDED_BY(mutex_) = false;
  bool is_cut_off_ KILN_GUARDED_BY(mutex_) = false;  // the last line is truncated
};

}  // namespace kiln
