// Kiln's own logger, "kiln", on stderr. The host program's default logger is left
// alone.

#pragma once

#include <spdlog/logger.h>

#include <string_view>

#include "kiln/result.h"

namespace kiln {

/// Level warning until set_log_level() says otherwise. Thread-safe; never destroyed, so
/// that it may be used while the program exits.
[[nodiscard]] spdlog::logger& logger();

/// trace, debug, info, warning, error or off. Errors: kInvalidArgument.
[[nodiscard]] Result<void> set_log_level(std::string_view level);

}  // namespace kiln
