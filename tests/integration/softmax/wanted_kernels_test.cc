// That no kernel is left out of the proofs: CMakeLists.txt lists those that are
// compiled for the CPU, and the other tests run each of them.

#include "tests/support/cpu_kernel/wanted_kernels.h"

#include <gmock/gmock.h>

#include "tests/integration/softmax/kernels.h"

namespace kiln::softmax_test {
namespace {

TEST(SoftmaxKernels, IncludeEachThatADefaultSetOrAPresetAsksFor) {
  EXPECT_THAT(kiln_cpu::wanted_but_missing("softmax", all_variants()),
              testing::IsEmpty());
}

}  // namespace
}  // namespace kiln::softmax_test
