// Why Kiln does not let cuDNN run a problem, before cuDNN itself is asked: the rules,
// and what Kiln's own plans cannot.

#pragma once

#include <optional>
#include <string>

#include "attention/cudnn_version.h"
#include "attention/evaluate.h"
#include "attention/problem.h"
#include "kiln/device.h"

namespace kiln::attention {

/// "cuDNN 9.5.0 does not run it: <rule>: <reason>; <remedy>".
[[nodiscard]] std::string to_string(const Finding& finding, CudnnVersion cudnn);

/// Where sequences of a packed problem may begin beyond what offsets of 32 bits reach,
/// whatever their lengths are: Kiln builds cuDNN's plans for such offsets.
[[nodiscard]] std::optional<Finding> find_wide_offsets(const Problem& problem);

struct CudnnRefusal {
  std::string id;    // of the rule: what is alike in all such refusals
  std::string text;  // a sentence with the remedy
  friend bool operator==(const CudnnRefusal&, const CudnnRefusal&) = default;
};

/// The first reason, of this problem or of the pass that the same backend must run.
/// nullopt: cuDNN may be asked.
[[nodiscard]] std::optional<CudnnRefusal> why_not_cudnn(const Problem& problem,
                                                        ComputeCapability capability,
                                                        CudnnVersion cudnn);

}  // namespace kiln::attention
