// The flags of `kiln attention` that describe a problem.

#pragma once

#include <string>

#include "attention/problem.h"
#include "kiln/result.h"
#include "tools/option_set.h"

namespace kiln::tools {

/// The texts on the command line; empty: not given.
struct ProblemOptions {
  std::string pass, dtype, batch, heads, kv_heads, sq, skv, dqk, dv, mask;
  std::string window, bias, dropout, layout;
  bool training = false, stats = false, capture = false, deterministic = false;
  bool bias_gradient = false;
};

void add_problem_options(OptionSet& cli, ProblemOptions& options);

/// A problem that passes validate(). Errors: kInvalidArgument, naming the flag.
[[nodiscard]] Result<attention::Problem> read_problem(const ProblemOptions& options);

/// Applies the given flags to `problem`, and then sets its strides. Errors: as
/// read_problem().
[[nodiscard]] Result<attention::Problem> read_problem_over(
    const ProblemOptions& options, attention::Problem problem);

/// `parsed`; its error, if any, names `flag`.
template <typename T>
Result<T> named(std::string_view flag, Result<T> parsed) {
  if (!parsed)
    return fail(parsed.error().code,
                "attention: " + std::string(flag) + " " + parsed.error().message);
  return parsed;
}

}  // namespace kiln::tools
