// "Did you mean": the known word closest to a mistyped one.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kiln {

/// The candidate with the smallest edit distance to `word` (insert, delete, replace or
/// swap of neighbours cost one each), if that is at most a third of the longer word,
/// and at least one edit is allowed. Dashes before an option do not count, and a word
/// of up to five letters has no other one in the place of its first. Ties go to the
/// first.
[[nodiscard]] std::optional<std::string> nearest(
    std::string_view word, std::span<const std::string> candidates);

/// ", did you mean 'x'?" or "". A word of 3 letters or more that begins, or else is
/// part of, a few candidates is taken for the short form of these, with or without
/// their '_' and '-': ", did you mean 'h100-pcie' or 'h100-sxm'?".
[[nodiscard]] std::string did_you_mean(std::string_view word,
                                       std::span<const std::string> candidates);

}  // namespace kiln
