#include "codec/field_decoder.h"

namespace kiln {

std::string FieldDecoder::text(std::string_view label) {
  const auto value = fields_.find(label);
  if (!value)
    note(fmt::format("field '{}' is missing", label));
  return std::string(value.value_or(std::string_view{}));
}

std::vector<std::string> FieldDecoder::texts(std::string_view label) const {
  std::vector<std::string> list;
  for (const Field& field : fields_.list()) {
    if (field.label == label)
      list.push_back(field.value);
  }
  return list;
}

}  // namespace kiln
