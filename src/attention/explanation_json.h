// An explanation as programs read it: what `kiln attention explain --json` prints.

#pragma once

#include <nlohmann/json_fwd.hpp>

#include "attention/explain.h"

namespace kiln::attention {

/// `{"chosen","cudnn","kiln","steps"}`.
[[nodiscard]] nlohmann::ordered_json to_json(const Explanation& explanation);

}  // namespace kiln::attention
