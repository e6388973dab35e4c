#include "util/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
#include <array>
#include <memory>

namespace kiln {

spdlog::logger& logger() {
  // Never destroyed. NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const instance = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    auto* created = new spdlog::logger("kiln", std::move(sink));
    created->set_pattern("%n: %^%l%$: %v");
    created->set_level(spdlog::level::warn);
    return created;
  }();
  return *instance;
}

Result<void> set_log_level(std::string_view level) {
  constexpr std::array kLevels{"trace", "debug", "info", "warning", "error", "off"};
  if (std::find(kLevels.begin(), kLevels.end(), level) == kLevels.end()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("unknown log level '{}'; known are {}", level,
                            fmt::join(kLevels, ", ")));
  }
  logger().set_level(spdlog::level::from_str(std::string(level)));
  return {};
}

}  // namespace kiln
