// What the toolkit's headers can include. A file of the request with such a name hides
// the toolkit's if its folder is searched first.

#pragma once

#include <string_view>
#include <vector>

#include "key/header_snapshot.h"

namespace kiln::key {

/// Appends every operand in the tree, and every file as an #include can spell it, since
/// a computed #include may name any. They point into the tree.
void append_operands(const ToolkitTree& tree, std::vector<std::string_view>& operands);

/// Whether append_operands() gives `operand`, or `operand` without kStdSuffix.
[[nodiscard]] bool has_operand(const ToolkitTree& tree, std::string_view operand);

}  // namespace kiln::key
