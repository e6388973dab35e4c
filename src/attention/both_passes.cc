#include "attention/both_passes.h"

namespace kiln::attention {

Problem chosen_by(const Problem& problem) {
  if (!(problem.dropout > 0))
    return problem;
  Problem forward = problem;
  forward.pass = Pass::kForward;
  forward.training = forward.stats = true;
  forward.bias_gradient = false;
  forward.deterministic = forward.capture = false;
  return forward;
}

std::vector<Problem> run_together(const Problem& problem) {
  if (!(problem.dropout > 0))
    return {problem};
  Problem forward = chosen_by(problem);
  forward.deterministic = forward.capture = true;
  Problem backward = forward;
  backward.pass = Pass::kBackward;
  backward.bias_gradient = problem.bias == Bias::kPostScale;
  return {forward, backward};
}

}  // namespace kiln::attention
