// Running a program with stand-ins for NVRTC beneath it and its children.

#pragma once

#include <string>
#include <vector>

#include "kiln/result.h"

namespace kiln::tools {

inline constexpr const char* kAuditVariable = "LD_AUDIT";

/// Its value with Kiln's module, behind those of others. Errors: kUnavailable.
[[nodiscard]] Result<std::string> audit_modules();

/// Replaces this process by the program, which gets signals as without the kiln
/// program. Returns only if it does not start: the errno.
[[nodiscard]] int execute(const std::vector<std::string>& command);

}  // namespace kiln::tools
