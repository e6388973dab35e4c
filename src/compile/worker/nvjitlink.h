// One link with nvJitLink in this very process. Its few functions are declared here, so
// that no build needs its header; it is opened from one absolute path, as NVRTC is.

#pragma once

#include "compile/protocol/job.h"
#include "compile/protocol/link_job.h"
#include "compile/worker/nvrtc_compile.h"
#include "kiln/result.h"

namespace kiln::compile {

/// Links `job`; with its device runtime only if something in it is undefined without.
/// Errors: kUnavailable (no such nvJitLink; device code that starts kernels, and no
/// device runtime); kInvalidArgument (an option or an input that it does not know);
/// kCompileFailed with its log; kResourceLimit.
[[nodiscard]] Result<CompileOutput> link_here(const LinkJob& job,
                                              const PhaseCallback& on_phase);

}  // namespace kiln::compile
