// A problem as labelled fields, for keys and for the plan worker, and as flags of the
// command line, for people.

#pragma once

#include <string>

#include "attention/problem.h"
#include "codec/fields.h"
#include "kiln/result.h"

namespace kiln::attention {

/// Everything that a plan depends on, under fixed labels: equal fields mean equal
/// plans.
[[nodiscard]] Fields to_fields(const Problem& problem);
/// Errors: kCorrupt, kInvalidArgument (not a valid problem; see validate()).
[[nodiscard]] Result<Problem> problem_from(const Fields& fields);

/// For people: without default values, and without strides that follow from the layout.
[[nodiscard]] Fields shown_fields(const Problem& problem);

/// "--pass bwd --dtype bf16 --batch 2 …". Strides that do not follow from the layout
/// are omitted: there is no flag for them.
[[nodiscard]] std::string flags_of(const Problem& problem);

}  // namespace kiln::attention
