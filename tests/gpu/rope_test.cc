// The rotary embedding on real devices against double: the reference, the inputs and
// the bounds of the tests on a CPU (tests/integration/rope).

#include "tests/gpu/operations_on_device.h"
#include "tests/integration/rope/problem.h"

namespace kiln::gpu_test::rope_on_device {
namespace {

using ops::DType;
using ops::RopeStyle;
using rope_test::Form;
using rope_test::Layout;
using rope_test::Setting;
using rope_test::Shape;
using rope_test::TableKind;

std::vector<Form> forms() {
  std::vector<Form> all;
  for (const bool forward : {true, false}) {
    for (const auto& [dtype, style, table] :
         {std::tuple{DType::kBf16, RopeStyle::kHalf, TableKind::kAngles},
          {DType::kBf16, RopeStyle::kHalf, TableKind::kCosSinF32},
          {DType::kBf16, RopeStyle::kInterleaved, TableKind::kCosSin},
          {DType::kF16, RopeStyle::kHalf, TableKind::kAngles},
          {DType::kF16, RopeStyle::kInterleaved, TableKind::kCosSinF32},
          {DType::kF32, RopeStyle::kHalf, TableKind::kCosSin},
          {DType::kF32, RopeStyle::kInterleaved, TableKind::kAngles}})
      all.push_back(
          {.forward = forward, .dtype = dtype, .style = style, .table = table});
  }
  return all;
}

class GpuRope : public GpuResultsTest, public testing::WithParamInterface<Form> {
 protected:
  static void check(const Shape& shape, const Setting& setting = {}) {
    SCOPED_TRACE(testing::Message() << shape);
    rope_test::with_types(GetParam(), [&]<typename T, typename U>() {
      on_each_kind_of_device([&] {
        rope_test::Problem<T, U>(GetParam(), shape, setting).run_and_check();
      });
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Forms, GpuRope, testing::ValuesIn(forms()),
                         [](const auto& each) {
                           return testing::PrintToString(each.param);
                         });

TEST_P(GpuRope, IsRightForShapesStridesPositionsAndPackedSequences) {
  check({.batch = 2,
         .sequence = many(2000, 40),
         .q_heads = 8,
         .k_heads = 2,
         .dim = 128,
         .rotary = 128});
  check(
      {.batch = 3, .sequence = 37, .q_heads = 5, .k_heads = 3, .dim = 31, .rotary = 22},
      {.paired = true, .start = 11});
  check(
      {.batch = 3, .sequence = 9, .q_heads = 4, .k_heads = 2, .dim = 80, .rotary = 32},
      {.in = Layout::kBshd, .out = Layout::kBhsd, .gap = 8, .starts = {5, 0, 77}});
  check({.batch = 2, .sequence = 9, .q_heads = 3, .dim = 32, .rotary = 16},
        {.in = Layout::kDbsh, .gap = 3, .table_gap = 1});
  check({.batch = 5,
         .sequence = 70,
         .q_heads = 3,
         .k_heads = 1,
         .dim = 64,
         .rotary = 32,
         .cu_seqlens = {3, 7, 7, 8, 59, 64}},  // tokens of no sequence on both sides
        {.start = 4, .starts = {3, 900, 0, 2, 11}});
}

}  // namespace
}  // namespace kiln::gpu_test::rope_on_device
