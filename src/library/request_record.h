// KILN_RECORD: records a program's requests in a manifest for `kiln warm`.

#pragma once

#include <filesystem>
#include <memory>
#include <unordered_set>

#include "codec/digest.h"
#include "device/architecture.h"
#include "kiln/request.h"
#include "kiln/result.h"
#include "toolchain/toolchain.h"
#include "util/line_file.h"
#include "util/mutex.h"

namespace kiln {

/// Thread safety: add() may run concurrently, and other processes may add to the file:
/// each line is one write to the end of it.
class RequestRecord {
 public:
  /// Errors: as LineFile::open; kIo for anything but a regular file.
  [[nodiscard]] static Result<std::unique_ptr<RequestRecord>> open(
      const std::filesystem::path& path);

  /// Adds a line unless this process has already added one for `key`. Folders become
  /// absolute; a request as NVRTC's tells `toolchain`, and this program. The first
  /// request that cannot be recorded is logged: JSON cannot represent it, or the write
  /// failed.
  void add(const Digest& key, const Request& request, device::Target target,
           const device::Toolchain& toolchain);

 private:
  explicit RequestRecord(std::unique_ptr<LineFile> file) : file_(std::move(file)) {}
  [[nodiscard]] Result<void> write(const Request& request, device::Target target,
                                   const device::Toolchain& toolchain);

  const std::unique_ptr<LineFile> file_;
  Mutex mutex_;
  std::unordered_set<Digest> known_ KILN_GUARDED_BY(mutex_);
  bool warned_ KILN_GUARDED_BY(mutex_) = false;
};

}  // namespace kiln
