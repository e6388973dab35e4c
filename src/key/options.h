// NVRTC's options as far as a key must understand them. Source: NVRTC documentation,
// "Supported Compile Options"; accepted spellings observed with NVRTC 13.0.

#pragma once

#include <string>
#include <vector>

#include "key/key.h"
#include "kiln/result.h"

namespace kiln::key {

/// What --pre-include has the compiler include in front of the source, in order.
[[nodiscard]] std::vector<std::string> pre_includes(
    const std::vector<std::string>& options);

/// Errors: kInvalidArgument, unless normalized() would leave the input as it is.
[[nodiscard]] Result<void> check_normalized(const SourceKeyInput& input);

}  // namespace kiln::key
