// One compile with NVRTC in this very process: program, options, names, results. The
// worker is a shell around it.

#pragma once

#include <chrono>
#include <functional>

#include "compile/protocol/job.h"
#include "compile/worker/nvrtc.h"
#include "kiln/result.h"

namespace kiln::compile {

/// Called at the start of kCompiling and kReading, on the calling thread.
using PhaseCallback = std::function<void(BuildPhase)>;

/// Compiles `job` with its options and log_options(). Blocks until NVRTC returns;
/// `deadline` goes to NVRTC's flow callback, if it has one, and is no guarantee.
/// A long log is shortened, here and in an error, and the resources whose names are too
/// long in sum are left out: with lowered names no result has over 1 MiB of such text.
/// `files` stays empty: only a process that exports open() can record them. Errors: as
/// nvrtc_error; kTimeout when NVRTC stopped at the deadline; kCompileFailed when NVRTC
/// reported success but gave no image or no lowered name.
[[nodiscard]] Result<CompileOutput> compile_here(
    const Nvrtc& nvrtc, const CompileJob& job,
    std::chrono::steady_clock::time_point deadline, const PhaseCallback& on_phase);

}  // namespace kiln::compile
