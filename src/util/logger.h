// The spdlog logger under util/log.h, for code that needs its sinks.

#pragma once

#include <spdlog/logger.h>

namespace kiln {

/// "kiln", on stderr. Thread-safe; never destroyed.
[[nodiscard]] spdlog::logger& logger();

}  // namespace kiln
