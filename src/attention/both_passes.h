// Whether one backend must compute both passes of a problem, and which problems those
// are: two backends drop other probabilities for the same seed.

#pragma once

#include <vector>

#include "attention/problem.h"

namespace kiln::attention {

/// The problem that a choice of the backend is remembered by: with dropout the forward
/// pass of its training, whichever pass `problem` is and whether or not that one is
/// deterministic or captured; else itself.
[[nodiscard]] Problem chosen_by(const Problem& problem);

/// What cuDNN must be able to run if it is to run `problem`: with dropout both passes,
/// the backward one with the gradient of its bias, if it has one, and each as the most
/// that a caller may ask of one of them alone, deterministic and captured; else itself.
[[nodiscard]] std::vector<Problem> run_together(const Problem& problem);

}  // namespace kiln::attention
