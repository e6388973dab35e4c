// An operation's plan as NVRTC compiles it: PTX of any architecture, without ptxas, run
// by the interpreter in the memory of the test.

#pragma once

#include <functional>
#include <string>

#include "kiln/device.h"
#include "kiln/result.h"
#include "ops/plan.h"
#include "tests/integration/ptx/compile_to_ptx.h"
#include "tests/support/ptx/interpreter.h"

namespace kiln::test {

struct AsPtx {
  ptx::Schedule schedule{};
  ptx::Checks checks{};
  /// Changes the text before it is decoded.
  std::function<std::string(std::string)> edit{};
};

/// All forms and more orders, not a covering part of them: with KILN_TEST_WHOLE, for
/// --full.
[[nodiscard]] bool is_whole();

/// Runs the launches one after the other; pointers lead into GuardedMemory. What was
/// noticed is added to `report`. Errors: of compiling; kDevice, a kernel's fault.
[[nodiscard]] Result<void> run_as_ptx(const ops::Launches& plan,
                                      ComputeCapability capability, const AsPtx& how,
                                      ptx::Report& report);

}  // namespace kiln::test
