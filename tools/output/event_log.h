// --events FILE: one JSON object a line, as things happen, for a scheduler to follow.

#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kiln/result.h"
#include "util/mutex.h"
#include "util/unique_fd.h"

namespace kiln::tools {

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
