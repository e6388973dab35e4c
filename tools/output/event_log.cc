#include "tools/output/event_log.h"

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "util/log.h"
#include "util/posix_error.h"
#include "util/units.h"

namespace kiln::tools {

Result<std::unique_ptr<EventLog>> EventLog::open(const std::string& path) {
  constexpr mode_t kMode = 0644;
  UniqueFd file(::open(path.c_str(),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, kMode));
  if (!file)
    return posix_error("open", path, errno);
  return std::unique_ptr<EventLog>(new EventLog(std::move(file), path));
}

EventLog::EventLog(UniqueFd file, std::string path)
    : file_(std::move(file)), path_(std::move(path)) {}

void EventLog::write(const nlohmann::ordered_json& event) {
  nlohmann::ordered_json line = {
      {"time", format_time(std::chrono::system_clock::now())}};
  line.update(event);
  std::string text =
      line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text += '\n';
  const MutexLock lock(mutex_);
  const ssize_t written = ::write(file_.get(), text.data(), text.size());
  const int err = errno;
  if (written != static_cast<ssize_t>(text.size()) && !failed_) {
    failed_ = true;
    log(LogLevel::kWarning,
        {posix_error("write", path_, written < 0 ? err : ENOSPC).value().message,
         "; later events may be missing"});
  }
}

}  // namespace kiln::tools
