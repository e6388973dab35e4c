// Checks that a build's output matches its job. Wrong output that the compiler reports
// as a success must never reach a cache or a device.

#pragma once

#include "compile/protocol/job.h"
#include "compile/protocol/link_job.h"
#include "compile/protocol/plan_job.h"
#include "kiln/result.h"

namespace kiln::compile {

/// Checks that the image has the job's kind, architecture and suffix, and defines every
/// lowered name (of kernels and of variables). The caller checks entry points that no
/// name expression asked for. Errors: kCompileFailed, naming the mismatch.
[[nodiscard]] Result<void> check_output(const CompileJob& job,
                                        const CompileOutput& output);

/// Checks that the cubin is the wanted target's. Errors: as above.
[[nodiscard]] Result<void> check_output(const LinkJob& job,
                                        const CompileOutput& output);

/// Checks that there is a plan, or a reason why there is none. The caller checks the
/// plan's content. Errors: kCompileFailed.
[[nodiscard]] Result<void> check_output(const PlanJob& job, const PlanOutput& output);

}  // namespace kiln::compile
