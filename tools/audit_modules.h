// The variable that puts stand-ins for NVRTC beneath a program and its children.

#pragma once

#include <string>

#include "kiln/result.h"

namespace kiln::tools {

inline constexpr const char* kAuditVariable = "LD_AUDIT";

/// Its value with Kiln's module, behind those of others. Errors: kUnavailable.
[[nodiscard]] Result<std::string> audit_modules();

}  // namespace kiln::tools
