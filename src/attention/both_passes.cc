#include "attention/both_passes.h"

namespace kiln::attention {

Problem chosen_by(const Problem& problem) {
  if (!(problem.dropout > 0))
    return problem;
  Problem forward = problem;
  forward.pass = Pass::kForward;
  forward.training = forward.stats = true;
  forward.bias_gradient = false;
  return forward;
}

std::vector<Problem> run_together(const Problem& problem) {
  if (!(problem.dropout > 0))
    return {problem};
  const Problem forward = chosen_by(problem);
  Problem backward = forward;
  backward.pass = Pass::kBackward;
  backward.bias_gradient = problem.bias == Bias::kPostScale;
  return {forward, backward};
}

}  // namespace kiln::attention
