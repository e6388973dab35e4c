// What a key is made of, and how two differ, for people and as JSON.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "codec/fields.h"
#include "key/difference.h"

namespace kiln::tools {

/// [{"field","value"}]
[[nodiscard]] nlohmann::ordered_json preimage_json(const Fields& preimage);

/// "field: value" lines; a value of several lines is indented below its field.
[[nodiscard]] std::string format_preimage(const Fields& preimage);

/// [{"field","a","b"}]
[[nodiscard]] nlohmann::ordered_json differences_json(
    const std::vector<key::FieldDifference>& differences);

}  // namespace kiln::tools
