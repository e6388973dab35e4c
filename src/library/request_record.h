// KILN_RECORD: what a program asked for, as a manifest that `kiln warm` builds from.

#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <unordered_set>

#include "codec/digest.h"
#include "device/architecture.h"
#include "kiln/request.h"
#include "kiln/result.h"
#include "util/mutex.h"
#include "util/unique_fd.h"

namespace kiln {

/// Thread safety: add() may run concurrently, and other processes may add to the file:
/// each line is one write to the end of it.
class RequestRecord {
 public:
  /// Appends to `path`, or makes it, mode 0644 less the umask.
  /// Errors: kIo, naming path and errno.
  [[nodiscard]] static Result<std::unique_ptr<RequestRecord>> open(
      const std::filesystem::path& path);

  /// Adds a line unless `key` has one from this process; folders become absolute. What
  /// cannot be written, or not as JSON, or is PTX, which no line can ask for, is told
  /// once in the log.
  void add(const Digest& key, const Request& request, device::Target target);

 private:
  RequestRecord(UniqueFd file, std::filesystem::path path);
  [[nodiscard]] Result<void> write(const Request& request, device::Target target)
      KILN_REQUIRES(mutex_);

  // Constant after construction.
  const UniqueFd file_;
  const std::filesystem::path path_;

  Mutex mutex_;
  std::unordered_set<Digest> known_ KILN_GUARDED_BY(mutex_);
  bool warned_ KILN_GUARDED_BY(mutex_) = false;
  bool is_cut_off_ KILN_GUARDED_BY(mutex_) = false;  // the last line
};

}  // namespace kiln
