// What to do about a source that NVRTC refuses, where the reason is known: a name that
// no kernel has, an option of nvcc, host code.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kiln/request.h"

namespace kiln::request {

/// A sentence for each reason that `log`, of NVRTC's refusal of `source`, shows.
[[nodiscard]] std::vector<std::string> source_hints(const SourceOptions& source,
                                                    std::string_view log);

}  // namespace kiln::request
