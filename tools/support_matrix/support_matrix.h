// Makes SUPPORT.md: tables of what the rules say about common problems, and a line for
// every rule. Uses the rules alone, when Kiln is built; not part of the library.

#pragma once

#include <string>
#include <vector>

#include "attention/evaluate.h"

namespace kiln::attention {

struct SupportRow {
  std::string name;
  Problem problem;
};
struct SupportTable {
  std::string title;
  std::vector<SupportRow> rows;
};

/// The problems in the tables of SUPPORT.md.
[[nodiscard]] std::vector<SupportTable> support_tables();

/// A range of cuDNN versions that support one problem on one architecture. `until` is
/// the first that does not; nullopt: every later version that the rules name does.
struct SupportedRange {
  CudnnVersion from;
  std::optional<CudnnVersion> until{};
  friend bool operator==(const SupportedRange&, const SupportedRange&) = default;
};

/// Tries every version that the rules name and the one after it; ascending.
[[nodiscard]] std::vector<SupportedRange> supported_ranges(const RuleSet& rules,
                                                           const Problem& problem,
                                                           ComputeCapability arch);

/// The whole document, Markdown.
[[nodiscard]] std::string support_matrix(const RuleSet& rules);

}  // namespace kiln::attention
