// Which kernels of a family are asked for: by its default sets, and by the presets.
// Which of them run on the CPU is a list of its own, and this tells what it lacks.

#pragma once

#include <set>
#include <string>
#include <string_view>

namespace kiln_cpu {

/// "NAME:p=v,q=w" with every parameter, of those that are asked for and that the
/// program has not. A family that nobody asks for kernels of is a failure of the test.
[[nodiscard]] std::set<std::string> wanted_but_missing(std::string_view family);

}  // namespace kiln_cpu
