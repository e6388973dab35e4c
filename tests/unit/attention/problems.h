// Problems for tests of attention.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "attention/evaluate.h"
#include "tests/support/attention_problem.h"

namespace kiln::attention {

/// bf16, batch 2, 16 heads, 1024 by 1024, head dimension 128, no mask, bshd.
inline Problem base(Pass pass = Pass::kForward) {
  const Problem forward = test::usual_attention_problem();
  return pass == Pass::kForward ? forward : test::backward_of(forward);
}

inline Problem with_dims(Problem problem, std::int64_t dqk, std::int64_t dv) {
  problem.dqk = dqk;
  problem.dv = dv;
  set_strides(problem);
  return problem;
}

inline Problem with_mask(Problem problem, Mask mask) {
  problem.mask = mask;
  return problem;
}

inline Problem with_lengths(Problem problem, std::int64_t sq, std::int64_t skv) {
  problem.sq = sq;
  problem.skv = skv;
  set_strides(problem);
  return problem;
}

inline CudnnVersion version(std::string_view text) {
  return parse_cudnn_version(text).value();
}

inline std::vector<std::string> ids(const std::vector<Finding>& findings) {
  std::vector<std::string> found;
  for (const Finding& each : findings) found.push_back(each.id);
  return found;
}

inline std::vector<std::string> refusals(const Problem& problem, ComputeCapability arch,
                                         std::string_view cudnn) {
  return ids(evaluate(problem, arch, version(cudnn)).refusals);
}

/// What that rule says of the problem; a test failure where it says nothing.
inline Finding finding(const Problem& problem, ComputeCapability arch,
                       std::string_view cudnn, std::string_view id) {
  const Verdict verdict = evaluate(problem, arch, version(cudnn));
  for (const auto* const list : {&verdict.refusals, &verdict.policies}) {
    const auto found = std::ranges::find(*list, id, &Finding::id);
    if (found != list->end())
      return *found;
  }
  ADD_FAILURE() << id << " says nothing of " << to_string(problem);
  return {};
}

}  // namespace kiln::attention
