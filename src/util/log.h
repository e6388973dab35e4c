// Kiln's own log, on stderr. The host program's default logger is left alone.

#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "kiln/result.h"

namespace kiln {

enum class LogLevel { kDebug, kInfo, kWarning };

/// Writes `parts`, joined, as one line. Level warning until set_log_level() says
/// otherwise. Thread-safe; may be used while the program exits. Not a template: spdlog
/// and fmt's formatter are compiled in log.cc alone.
void log(LogLevel level, std::initializer_list<std::string_view> parts) noexcept;

/// Where lines go in place of stderr, without the level's name; {}: to stderr again.
/// Called by any thread, several at once, and after this returns until who is in it has
/// ended. Thread-safe.
void log_to(std::function<void(LogLevel, const std::string&)> writer);

/// trace, debug, info, warning, error or off. Errors: kInvalidArgument.
[[nodiscard]] Result<void> set_log_level(std::string_view level);

}  // namespace kiln
