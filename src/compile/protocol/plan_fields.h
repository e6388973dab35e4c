// The payloads of a plan worker's messages as field lists, and back; see
// protocol_fields.h.

#pragma once

#include "codec/fields.h"
#include "compile/protocol/plan_job.h"
#include "kiln/result.h"

namespace kiln::compile {

[[nodiscard]] cache::Fields to_fields(const PlanJob& job);
[[nodiscard]] cache::Fields to_fields(const PlanOutput& output);

[[nodiscard]] Result<PlanJob> plan_job_from(const cache::Fields& fields);
[[nodiscard]] Result<PlanOutput> plan_output_from(const cache::Fields& fields);

}  // namespace kiln::compile
