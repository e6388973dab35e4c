// That no kernel is left out of the proofs: CMakeLists.txt lists those that are
// compiled for the CPU, and the other tests run each of them.

#include "tests/support/cpu_kernel/wanted_kernels.h"

#include <gmock/gmock.h>

#include "tests/support/cpu_kernel/run_plan.h"

namespace kiln::norm_test {
namespace {

TEST(NormKernels, IncludeEachThatADefaultSetOrAPresetAsksFor) {
  EXPECT_THAT(kiln_cpu::wanted_but_missing("norm", kiln_cpu::kernels_of_program()),
              testing::IsEmpty());
}

}  // namespace
}  // namespace kiln::norm_test
