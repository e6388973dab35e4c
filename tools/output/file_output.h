// Files that the user names: -o, --extract, --profile, --events.

#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "kiln/result.h"
#include "util/bytes.h"
#include "util/mutex.h"
#include "util/unique_fd.h"

namespace kiln::tools {

/// Checks, before any work, that a file can be made at `path`; "-" always can.
/// Errors: kNotFound (no such folder), kInvalidArgument (it is a folder).
[[nodiscard]] Result<void> check_output_path(std::string_view option,
                                             const std::string& path);

/// The same for a folder of new files; one that is there must be empty.
/// Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_output_folder(std::string_view option,
                                               const std::string& path);

/// Replaces `path` in one step, so that a full disk leaves the old file whole; "-" is
/// standard output. The permissions are rw-r--r--. Errors: kIo.
[[nodiscard]] Result<void> write_output_file(const std::string& path, ByteView bytes);

/// --events FILE: one JSON object a line, as things happen, for a scheduler to follow.
/// Thread safety: write() may be called from any thread; lines never mix.
class EventLog {
 public:
  /// Appends to `path`, which is created if missing. Errors: kIo.
  [[nodiscard]] static Result<std::unique_ptr<EventLog>> open(const std::string& path);

  /// Adds "time" and writes one line. The first failed write is reported on stderr; the
  /// work goes on.
  void write(const nlohmann::ordered_json& event);

 private:
  EventLog(UniqueFd file, std::string path);

  const UniqueFd file_;
  const std::string path_;
  Mutex mutex_;
  bool failed_ KILN_GUARDED_BY(mutex_) = false;
};

}  // namespace kiln::tools
