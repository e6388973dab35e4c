// Cross-entropy on real devices against double: the reference, the inputs and the
// bounds of the tests on a CPU (tests/integration/cross_entropy).

#include "tests/gpu/operations_on_device.h"
#include "tests/integration/cross_entropy/problem.h"

namespace kiln::gpu_test::cross_entropy_on_device {
namespace {

using cross_entropy_test::Setting;

template <typename T>
class GpuCrossEntropy : public GpuResultsTest {
 protected:
  /// Loss and gradient in one pass, and in two, which give the same bits.
  static void check(const Setting& setting) {
    cross_entropy_test::Problem<T> problem(setting);
    on_each_kind_of_device([&] {
      const auto fused = problem.fused();
      std::ignore = problem.check(fused);
      const auto separate = problem.forward_and_backward();
      std::ignore = problem.check(separate);
      EXPECT_TRUE(same_bits(fused.loss, separate.loss)) << setting;
      EXPECT_TRUE(same_bits(fused.lse, separate.lse)) << setting;
      EXPECT_TRUE(same_bits(fused.dlogits, separate.dlogits)) << setting;
    });
  }
};
TYPED_TEST_SUITE(GpuCrossEntropy, cross_entropy_test::ElementTypes,
                 cross_entropy_test::TypeNames);

// The problem ignores every fifth row.
TYPED_TEST(GpuCrossEntropy, IsRightForRowsThatABlockKeepsAndLongerOnes) {
  this->check({.rows = this->many(1500, 30), .vocabulary = 1024, .scale = 1.0F / 3});
  this->check({.rows = 9,
               .vocabulary = 1001,
               .padded_vocabulary = 1024,
               .logits_stride = 1030,
               .dlogits_stride = 1027,
               .smoothing = 0.1F,
               .scale = 0.25F,
               .row_scale = true,
               .target_type = ops::TargetType::kInt32,
               .ignored_index = 7});
  this->check({.rows = 4, .vocabulary = 50257, .smoothing = 0.1F});
  this->check({.rows = this->many(20, 4), .vocabulary = 128256, .scale = 0.01F});
}

}  // namespace
}  // namespace kiln::gpu_test::cross_entropy_on_device
