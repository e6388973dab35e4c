// Formats the answers of `kiln attention`, for programs and for people.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "attention/explain.h"
#include "tools/output/terminal.h"

namespace kiln::tools {

[[nodiscard]] std::string explanation_text(const attention::RuleQuestion& question,
                                           const attention::ExplainOptions& options,
                                           const attention::Explanation& explanation,
                                           const Terminal& terminal);

/// The answer for one architecture and one version.
struct MatrixCell {
  ComputeCapability arch;
  attention::CudnnVersion cudnn;
  attention::Explanation explanation;
};

/// `{"matrix":[{"arch","cudnn","chosen","supported","rules"}],"rules":[{"id","reason"}]}`.
[[nodiscard]] nlohmann::ordered_json matrix_json(const std::vector<MatrixCell>& cells);

/// A row per architecture, a column per version, and a legend for the numbers.
[[nodiscard]] std::string matrix_text(const attention::Problem& problem,
                                      const std::vector<MatrixCell>& cells,
                                      const Terminal& terminal);

}  // namespace kiln::tools
