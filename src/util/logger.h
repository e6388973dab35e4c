// The spdlog logger under util/log.h, for what needs its sinks.

#pragma once

#include <spdlog/logger.h>

namespace kiln {

/// "kiln", on stderr. Thread-safe; never destroyed.
[[nodiscard]] spdlog::logger& logger();

}  // namespace kiln
