// The payloads of a plan worker's messages as field lists, and back; see
// protocol_fields.h.

#pragma once

#include "codec/fields.h"
#include "compile/protocol/plan_job.h"
#include "kiln/result.h"

namespace kiln::compile {

[[nodiscard]] Fields to_fields(const PlanJob& job);
[[nodiscard]] Fields to_fields(const PlanOutput& output);

[[nodiscard]] Fields to_fields(const CudnnRequest& request);
[[nodiscard]] Fields to_fields(const CudnnDescription& description);

[[nodiscard]] Result<PlanJob> plan_job_from(const Fields& fields);
[[nodiscard]] Result<PlanOutput> plan_output_from(const Fields& fields);
[[nodiscard]] Result<CudnnRequest> cudnn_request_from(const Fields& fields);
[[nodiscard]] Result<CudnnDescription> cudnn_description_from(const Fields& fields);

}  // namespace kiln::compile
