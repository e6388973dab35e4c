// Problems as keys of what this process remembers of them.

#pragma once

#include <cstddef>

#include "attention/problem.h"

namespace kiln::attention {

struct ProblemHash {
  /// Of what tells a program's problems apart; the rest is compared.
  std::size_t operator()(const Problem& problem) const noexcept;
};

}  // namespace kiln::attention
