// Activations and gated ones on real devices against double: the reference, the inputs
// and the bounds of the tests on a CPU (tests/integration/activation).

#include "tests/gpu/operations_on_device.h"
#include "tests/integration/activation/problem.h"

namespace kiln::gpu_test::activation_on_device {
namespace {

using activation_test::Setting;
using activation_test::Shape;
using activation_test::Unit;
using ops::GluLayout;

std::vector<Unit> units() {
  using activation_test::unit_of;
  std::vector<Unit> all;
  for (const char* const dtype : {"f16", "bf16", "f32"}) {
    for (const char* const name : {"bias_gelu_tanh", "bias_gelu_erf", "squared_relu"})
      all.push_back(unit_of(name, dtype, true, false));
    all.push_back(unit_of("swiglu", dtype, false, false));
    all.push_back(unit_of("swiglu", dtype, true, false));
    all.push_back(unit_of("swiglu", dtype, false, true));
    for (const char* const name : {"geglu_tanh", "geglu_erf", "reglu"})
      all.push_back(unit_of(name, dtype, false, false));
  }
  all.push_back(unit_of("bias_gelu_tanh", "bf16", false, false));
  all.push_back(unit_of("clamped_swiglu", "f16", false, false));
  all.push_back(unit_of("clamped_swiglu", "bf16", true, false));
  all.push_back(unit_of("clamped_swiglu", "f32", false, true));
  return all;
}

class GpuActivation : public GpuResultsTest, public testing::WithParamInterface<Unit> {
 protected:
  /// Both passes.
  static void check(const Shape& shape, const Setting& setting = {}) {
    SCOPED_TRACE(testing::Message() << shape.rows << "x" << shape.cols);
    test::with_type(GetParam().dtype, [&]<typename T>() {
      activation_test::Problem<T> problem(GetParam(), shape, setting);
      on_each_kind_of_device([&] { std::ignore = problem.run_and_check(); });
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Units, GpuActivation, testing::ValuesIn(units()),
                         activation_test::kNameOf);

TEST_P(GpuActivation, IsRightForTilesInVectorsAndByElements) {
  check({.rows = many(4000, 70), .cols = 264});
  check({.rows = 37, .cols = 1037});
  if (!GetParam().gated)
    return;
  check({.rows = 40, .cols = 136}, {.layout = GluLayout::kSplit});
  check({.rows = 13, .cols = 77}, {.layout = GluLayout::kSplit, .offset = 1});
}

}  // namespace
}  // namespace kiln::gpu_test::activation_on_device
