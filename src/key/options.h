// The NVRTC options that a key must parse. Source: NVRTC documentation, "Supported
// Compile Options"; accepted spellings observed with NVRTC 13.0.

#pragma once

#include <string>
#include <vector>

#include "key/key.h"
#include "kiln/result.h"

namespace kiln::key {

/// The files that --pre-include puts in front of the source, in order.
[[nodiscard]] std::vector<std::string> pre_includes(
    const std::vector<std::string>& options);

/// Errors: kInvalidArgument if normalized() would change the input.
[[nodiscard]] Result<void> check_normalized(const SourceKeyInput& input);

}  // namespace kiln::key
