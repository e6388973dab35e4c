// SUPPORT.md: what the rules say of the problems that people have, as tables, and every
// rule as a line. Made from the rules alone, while Kiln is built; not in the library.

#pragma once

#include <string>
#include <vector>

#include "attention/evaluate.h"

namespace kiln::attention {

/// Versions of cuDNN, ascending, that support one problem on one device. `until` is the
/// first that does not; none: every later one that the rules speak of does.
struct SupportedRange {
  CudnnVersion from;
  std::optional<CudnnVersion> until{};
  friend bool operator==(const SupportedRange&, const SupportedRange&) = default;
};

/// By every version that the rules name and the one after it.
[[nodiscard]] std::vector<SupportedRange> supported_ranges(const RuleSet& rules,
                                                           const Problem& problem,
                                                           ComputeCapability arch);

/// The whole document, Markdown.
[[nodiscard]] std::string support_matrix(const RuleSet& rules);

}  // namespace kiln::attention
