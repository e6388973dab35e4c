#include "kiln/result.h"

#include <array>
#include <cstddef>

namespace kiln {

std::string_view to_string(ErrorCode code) {
  constexpr std::array<std::string_view, 12> kNames{
      "invalid_argument", "not_found", "compile_failed", "worker_crashed", "timeout",
      "resource_limit",   "cancelled", "corrupt",        "untrusted",      "io",
      "unavailable",      "device"};
  const auto at = static_cast<std::size_t>(code);
  return at < kNames.size() ? kNames[at] : "unknown";
}

}  // namespace kiln
