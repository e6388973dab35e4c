// One compile with NVRTC in this very process: program, options, names, results. The
// worker is a shell around it.

#pragma once

#include <chrono>
#include <functional>

#include "compile/protocol/job.h"
#include "compile/worker/nvrtc.h"
#include "kiln/result.h"

namespace kiln::compile {

/// Told when a phase begins (kCompiling, kReading), on the calling thread.
using PhaseCallback = std::function<void(BuildPhase)>;

/// Compiles `job` with its options and log_options(). Blocks until NVRTC returns;
/// `deadline` is passed to NVRTC's flow callback where it has one, and is no guarantee.
/// `files` stays empty: only a process that exports open() can see them.
/// Errors: as nvrtc_error; kTimeout when NVRTC heeded the deadline; kCompileFailed when
/// NVRTC reported success and gave no image or no lowered name.
[[nodiscard]] Result<CompileOutput> compile_here(
    const Nvrtc& nvrtc, const CompileJob& job,
    std::chrono::steady_clock::time_point deadline, const PhaseCallback& on_phase);

}  // namespace kiln::compile
