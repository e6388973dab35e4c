// A size that was forgotten is refused by its name: neither nothing nor a single row is
// computed instead.

#include "ops/plans.h"
#include "tests/unit/ops/refusals.h"

namespace kiln::ops::unset_sizes_checks {
namespace {

const Device kDevice{.name = "planned", .capability = {9, 0}, .multiprocessors = 132};

template <typename Args>
std::string refused(Args args) {
  args.dtype = DType::kBf16;
  return refusal(plan(args, kDevice));
}

template <typename Args>
class OperationByRows : public testing::Test {};
using ByRows =
    testing::Types<LayerNormForward, LayerNormBackward, RmsNormForward, RmsNormBackward,
                   ActivationForward, ActivationBackward, GluForward, GluBackward,
                   CrossEntropy, CrossEntropyForward, CrossEntropyBackward>;
TYPED_TEST_SUITE(OperationByRows, ByRows);

TYPED_TEST(OperationByRows, SaysWhichSizeIsNotSet) {
  TypeParam args;
  if constexpr (requires { args.layout; })
    args.kind = GluKind::kSwiglu;
  else if constexpr (requires { args.kind; })
    args.kind = ActivationKind::kGeluErf;
  EXPECT_TRUE(refused(args).ends_with(": rows is not set")) << refused(args);
  args.rows = 4;
  const std::string other = refused(args);
  EXPECT_TRUE(other.ends_with(": cols is not set") ||
              other.ends_with(": vocabulary is not set"))
      << other;
}

TEST(Softmax, SaysWhichSizeIsNotSet) {
  EXPECT_EQ(refused(SoftmaxForward{.skv = 4}), "softmax_forward: sq is not set");
  EXPECT_EQ(refused(SoftmaxBackward{.sq = 4}), "softmax_backward: skv is not set");
}

TEST(Rope, SaysWhichSizeIsNotSet) {
  static constexpr float kAngle = 0;
  RopeForward args;
  args.style = RopeStyle::kHalf;
  args.table.angles = &kAngle;
  for (const auto& [name, size] :
       {std::pair{"batch", &args.batch}, std::pair{"rotary_dim", &args.rotary_dim},
        std::pair{"sequence", &args.sequence}, std::pair{"head_dim", &args.head_dim},
        std::pair{"table.positions", &args.table.positions},
        std::pair{"table.columns", &args.table.columns}}) {
    EXPECT_EQ(refused(args), std::string("rope_forward: ") + name + " is not set");
    *size = 8;
  }
}

}  // namespace
}  // namespace kiln::ops::unset_sizes_checks
