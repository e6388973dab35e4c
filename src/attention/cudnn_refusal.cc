#include "attention/cudnn_refusal.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>

#include "attention/both_passes.h"

namespace kiln::attention {

std::string to_string(const Finding& finding, CudnnVersion cudnn) {
  return fmt::format("cuDNN {} does not run it: {}: {}; {}", to_string(cudnn),
                     finding.id, finding.reason, finding.remedy);
}

std::optional<Finding> find_wide_offsets(const Problem& problem) {
  if (problem.layout != Layout::kThd)
    return std::nullopt;
  constexpr double kMost = std::numeric_limits<std::int32_t>::max();
  const auto fits = [&](std::int64_t length, const Strides& strides) {
    return static_cast<double>(problem.batch) * static_cast<double>(length) *
               static_cast<double>(strides.sequence) <=
           kMost;
  };
  if (fits(problem.sq, problem.q) && fits(problem.skv, problem.k) &&
      fits(problem.skv, problem.v) && fits(problem.sq, problem.o))
    return std::nullopt;
  return Finding{
      .id = "offsets.32_bits",
      .kind = RuleKind::kFrameworkPolicy,
      .reason =
          "Kiln's plans of cuDNN have offsets of 32 bits, and packed sequences "
          "of these lengths may begin beyond",
      .remedy = "split the batch"};
}

std::optional<CudnnRefusal> why_not_cudnn(const Problem& problem,
                                          ComputeCapability capability,
                                          CudnnVersion cudnn) {
  if (const auto found = find_wide_offsets(problem))
    return CudnnRefusal{found->id, to_string(*found, cudnn)};
  for (const Problem& each : run_together(problem)) {
    const Verdict verdict = evaluate(each, capability, cudnn);
    if (verdict.supported)
      continue;
    const Finding& first = verdict.refusals.front();
    const bool is_other = each.pass != problem.pass;
    return CudnnRefusal{
        first.id,
        fmt::format("{}{}", to_string(first, cudnn),
                    is_other ? fmt::format(" (of the {} pass, which must drop what "
                                           "this one drops)",
                                           to_string(each.pass))
                             : std::string())};
  }
  return std::nullopt;
}

}  // namespace kiln::attention
