// An operation's plan as NVRTC compiles it: PTX of any architecture, without ptxas, run
// by the interpreter in the memory of the test.

#pragma once

#include "kiln/result.h"
#include "ops/plan.h"
#include "tests/support/kernels/compile_to_ptx.h"
#include "tests/support/kernels/run_kernel.h"

namespace kiln::test {

/// All forms and more orders, not a covering part of them: with KILN_TEST_WHOLE, for
/// --full.
[[nodiscard]] bool is_whole();

/// Runs the launches one after the other. Errors: those of run_kernel().
[[nodiscard]] Result<void> run_as_ptx(const ops::Launches& plan,
                                      const kiln_cpu::RunOptions& options,
                                      ptx::Report& report);

}  // namespace kiln::test
