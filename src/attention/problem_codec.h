// A problem as labelled fields, for keys and for the plan worker, and as flags of the
// command line, for people.

#pragma once

#include <string>

#include "attention/problem.h"
#include "codec/fields.h"
#include "kiln/result.h"

namespace kiln::attention {

/// Everything that a plan depends on, under fixed labels: equal fields are equal plans.
[[nodiscard]] Fields to_fields(const Problem& problem);
/// Errors: kCorrupt, kInvalidArgument (no problem at all; see validate()).
[[nodiscard]] Result<Problem> problem_from(const Fields& fields);

/// For people: without what is as it usually is, and strides that are the layout's.
[[nodiscard]] Fields shown_fields(const Problem& problem);

/// "--pass bwd --dtype bf16 --batch 2 …". Strides that are not the layout's are left
/// out: no flag says them.
[[nodiscard]] std::string flags_of(const Problem& problem);

}  // namespace kiln::attention
