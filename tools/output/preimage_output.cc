#include "tools/output/preimage_output.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace kiln::tools {

nlohmann::ordered_json preimage_json(const Fields& preimage) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Field& field : preimage.list())
    list.push_back({{"field", field.label}, {"value", field.value}});
  return list;
}

std::string format_preimage(const Fields& preimage) {
  std::string text;
  for (const Field& field : preimage.list()) {
    if (field.value.find('\n') == std::string::npos) {
      text += fmt::format("{}: {}\n", field.label, field.value);
      continue;
    }
    text += field.label + ":\n  ";
    for (const char c : field.value)
      text += c == '\n' ? std::string("\n  ") : std::string(1, c);
    text += '\n';
  }
  return text;
}

nlohmann::ordered_json differences_json(
    const std::vector<key::FieldDifference>& differences) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const key::FieldDifference& difference : differences) {
    list.push_back(
        {{"field", difference.field}, {"a", difference.a}, {"b", difference.b}});
  }
  return list;
}

}  // namespace kiln::tools
