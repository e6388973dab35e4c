// Does what NVRTC called a success look like what was asked for? A compiler that lies
// must never reach a cache or a device.

#pragma once

#include "compile/protocol/job.h"
#include "compile/protocol/plan_job.h"
#include "kiln/result.h"

namespace kiln::compile {

/// The image is of the job's kind, architecture and suffix, and defines every lowered
/// name (of kernels and of variables). Entry points that no name expression asked for
/// are the caller's to check. Errors: kCompileFailed, naming what disagrees.
[[nodiscard]] Result<void> check_output(const CompileJob& job,
                                        const CompileOutput& output);

/// There is a plan, or a reason why there is none. What is in the plan is the caller's
/// to check. Errors: kCompileFailed.
[[nodiscard]] Result<void> check_output(const PlanJob& job, const PlanOutput& output);

}  // namespace kiln::compile
