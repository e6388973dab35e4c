// What the headers of the toolkit can ask for: a file of the request's own that is
// called so, in a folder that is searched before theirs, is found instead.

#pragma once

#include <string_view>
#include <vector>

#include "key/header_snapshot.h"

namespace kiln::key {

/// Every operand in the tree, and every file of it as an #include can spell it: a
/// computed one may say any of them. They point into the tree.
void append_operands(const ToolkitTree& tree, std::vector<std::string_view>& operands);

/// Whether append_operands() has `operand`, or what NVRTC makes `operand` of.
[[nodiscard]] bool has_operand(const ToolkitTree& tree, std::string_view operand);

}  // namespace kiln::key
