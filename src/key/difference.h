// Two preimages compared field by field: the answer of `kiln why`.

#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codec/fields.h"

namespace kiln::key {

struct FieldDifference {
  std::string field;  // "target", "parameter/dtype", "header/a.h", "option", ...
  std::string a;      // "" if there is no such field
  std::string b;
  friend bool operator==(const FieldDifference&, const FieldDifference&) = default;
};

/// Every field that differs, in preimage order; fields of one label are matched in
/// order ("option" has many). For long texts, both sides show their digest and the
/// first line that differs. The include graph is shown only if neither a header nor the
/// source differs. Empty exactly if the two are equal.
[[nodiscard]] std::vector<FieldDifference> differences(const Fields& a,
                                                       const Fields& b);

struct NearestPreimage {
  std::size_t index = 0;                     // among the candidates
  std::vector<FieldDifference> differences;  // a: wanted, b: the candidate
};

/// The candidate with the smallest weighted difference: another kernel or source weighs
/// most, then the target, then parameters, options and headers, then the toolchain. The
/// first among equals. nullopt: no candidates.
[[nodiscard]] std::optional<NearestPreimage> nearest_preimage(
    const Fields& wanted, std::span<const Fields> candidates);

}  // namespace kiln::key
