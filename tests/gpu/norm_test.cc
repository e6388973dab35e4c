// LayerNorm and RMSNorm on real devices against double: the reference, the inputs and
// the bounds of the tests on a CPU (tests/integration/norm).

#include "tests/gpu/operations_on_device.h"
#include "tests/integration/norm/problem.h"

namespace kiln::gpu_test::norm_on_device {
namespace {

using norm_test::Configuration;
using norm_test::Setting;

class GpuNorm : public GpuResultsTest,
                public testing::WithParamInterface<Configuration> {
 protected:
  /// Both passes.
  static void check(const Setting& setting) {
    SCOPED_TRACE(testing::Message() << setting);
    norm_test::with_types(GetParam(), [&]<typename T, typename W>() {
      const norm_test::Problem<T, W> problem(GetParam(), setting);
      on_each_kind_of_device([&] {
        if (!GetParam().from_output) {
          EXPECT_LE(problem.errors(problem.forward()).excess, norm_test::kStoreUlp)
              << "forward";
        }
        EXPECT_LE(problem.errors(problem.backward()).excess, norm_test::kStoreUlp)
            << "backward";
      });
    });
  }
};

INSTANTIATE_TEST_SUITE_P(All, GpuNorm, testing::ValuesIn(norm_test::configurations()),
                         norm_test::kNameOf);
INSTANTIATE_TEST_SUITE_P(Other, GpuNorm, testing::ValuesIn(norm_test::other_forms()),
                         norm_test::kNameOf);

// On a device more rows than blocks compute at a time.
TEST_P(GpuNorm, IsRightForRowsInVectorsAndByElements) {
  const std::int64_t aligned = norm_test::aligned_length(GetParam());
  const std::int64_t odd = norm_test::odd_length(GetParam());
  check({.rows = many(3500000 / aligned, aligned > 5000 ? 3 : 20), .cols = aligned});
  check({.rows = many(37, 5), .cols = odd, .zero_centered = true});
  check({.rows = 3, .cols = aligned, .zero_centered = true, .offset = 1});
}

}  // namespace
}  // namespace kiln::gpu_test::norm_on_device
