// Two preimages compared field by field: the answer of `kiln why`.

#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/fields.h"

namespace kiln::key {

struct FieldDifference {
  std::string field;  // "target", "parameter/dtype", "header/a.h", "option", ...
  std::string a;      // "" if there is no such field
  std::string b;
  friend bool operator==(const FieldDifference&, const FieldDifference&) = default;
};

/// Texts whose digests preimages have, by their SHA-256 in hex digits: a text of
/// another digest is found by no field.
using Texts = std::map<std::string, std::string, std::less<>>;

/// Whether a field is a source or a header, as text or as its digest.
[[nodiscard]] bool is_text(std::string_view field);

/// Every field that differs, in preimage order; fields of one label are matched in
/// order ("option" has many). For long texts, and for digests of which `texts` has both
/// texts, both sides show their digest and the first line that differs. The include
/// graph is shown only if neither a header nor the source differs. Empty exactly if the
/// two are equal.
[[nodiscard]] std::vector<FieldDifference> differences(const Fields& a, const Fields& b,
                                                       const Texts& texts = {});

/// The candidate with the smallest weighted difference: another kernel or source weighs
/// most, then the target, then parameters, options and headers, then the toolchain. The
/// first among equals, by its index. nullopt: no candidates.
[[nodiscard]] std::optional<std::size_t> nearest_preimage(
    const Fields& wanted, std::span<const Fields> candidates);

}  // namespace kiln::key
