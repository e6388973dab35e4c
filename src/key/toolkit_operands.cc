#include "key/toolkit_operands.h"

#include <algorithm>
#include <string>

#include "key/include_search.h"

namespace kiln::key {

void append_operands(const ToolkitTree& tree, std::vector<std::string_view>& operands) {
  const IncludeTree& headers = *tree.headers;
  operands.insert(operands.end(), headers.operands().begin(), headers.operands().end());
  for (const TreeFile& file : headers.files()) {
    for (const std::string& folder : tree.folders) {
      if (file.path.starts_with(folder))
        operands.push_back(std::string_view(file.path).substr(folder.size()));
    }
  }
}

bool has_operand(const ToolkitTree& tree, std::string_view operand) {
  const IncludeTree& headers = *tree.headers;
  if (std::ranges::binary_search(headers.operands(), operand) ||
      std::ranges::any_of(tree.folders, [&](const std::string& folder) {
        return headers.find(folder + std::string(operand)) != nullptr;
      }))
    return true;
  return operand.ends_with(kStdSuffix) &&
         has_operand(tree, operand.substr(0, operand.size() - kStdSuffix.size()));
}

}  // namespace kiln::key
