// Kiln's own log, on stderr. The host program's default logger is left alone.

#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "kiln/result.h"

namespace kiln {

enum class LogLevel { kDebug, kInfo, kWarning };

/// Writes `parts`, joined, as one line. The level is warning until set_log_level()
/// changes it. Thread-safe; may be used while the program exits. Not a template: spdlog
/// and fmt's formatter are compiled in log.cc alone.
void log(LogLevel level, std::initializer_list<std::string_view> parts) noexcept;

/// False: log() writes nothing at this level.
[[nodiscard]] bool is_logged(LogLevel level) noexcept;

/// Sends lines to `writer` instead of stderr, without the level's name; {} restores
/// stderr. Any thread calls `writer`, several at once; a log() in progress may still
/// call it after this returns. Thread-safe.
void log_to(std::function<void(LogLevel, const std::string&)> writer);

/// True after log_to() with a writer: lines go to the host's own log.
[[nodiscard]] bool has_log_writer() noexcept;

/// trace, debug, info, warning, error or off. Errors: kInvalidArgument.
[[nodiscard]] Result<void> set_log_level(std::string_view level);

}  // namespace kiln
