// The flags of `kiln attention` that describe a problem.

#pragma once

#include <map>
#include <string>
#include <string_view>

#include "attention/problem.h"
#include "kiln/result.h"
#include "tools/option_set.h"

namespace kiln::tools {

/// What the command line says, by the fields of attention/problem_table.h; "window" is
/// both sides of one.
struct ProblemOptions {
  std::map<std::string_view, std::string> texts;  // empty: not given
  std::map<std::string_view, bool> flags;

  [[nodiscard]] const std::string& text(std::string_view field) const {
    return texts.at(field);
  }
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
