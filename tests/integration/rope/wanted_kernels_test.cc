// That no kernel is left out of the proofs: CMakeLists.txt lists those that are
// compiled for the CPU, and the other tests run each of them.

#include "tests/support/cpu_kernel/wanted_kernels.h"

#include <gmock/gmock.h>

#include "tests/integration/rope/kernels.h"

namespace kiln::rope_test {
namespace {

TEST(RopeKernels, IncludeEachThatADefaultSetOrAPresetAsksFor) {
  EXPECT_THAT(kiln_cpu::wanted_but_missing("rope", all_variants()), testing::IsEmpty());
}

}  // namespace
}  // namespace kiln::rope_test
