// Merges Options with the environment; Options take precedence.

#pragma once

#include "build/config.h"
#include "kiln/result.h"
#include "kiln/service.h"

namespace kiln {

/// The settings of a service opened with `options`. Errors: kInvalidArgument, naming
/// the variable or the member of Options.
[[nodiscard]] Result<Config> settings(const Options& options,
                                      const Environment& environment);

}  // namespace kiln
