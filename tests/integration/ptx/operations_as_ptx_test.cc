// The kernels of every operation but attention, as NVRTC compiles them for
// architectures that no other test runs, against the references and bounds of their
// families. Each architecture has a sixth of the forms, and all with KILN_TEST_WHOLE.
// The tests of tests/gpu run the kernels of 8.0.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "ops/plans.h"
#include "tests/integration/activation/problem.h"
#include "tests/integration/cross_entropy/problem.h"
#include "tests/integration/norm/problem.h"
#include "tests/integration/ptx/run_as_ptx.h"
#include "tests/integration/rope/problem.h"
#include "tests/integration/softmax/operation.h"
#include "tests/support/operations/run_operation.h"
#include "util/try.h"

namespace kiln::test {
namespace {

// What the next operations run on, and what was noticed.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
ComputeCapability current;
ptx::Report report;
std::uint64_t runs = 0;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

/// In lanes' order, in two others, and again.
Result<void> run_in_some_order(const ops::Launches& plan) {
  const std::uint64_t seed = runs++ % 3;
  return run_as_ptx(
      plan,
      {.capability = current,
       .schedule = {.seed = seed, .splits_warps = seed != 0, .is_noisy = seed != 0},
       .checks = {.races = seed == 1}},
      report);
}

}  // namespace

Device operations_device(const Schedule& schedule) {
  return {.name = "planned",
          .capability = current,
          .multiprocessors = schedule.multiprocessors};
}

Result<void> run_operation(const Operation& operation, const Schedule& schedule) {
  return run_in_some_order(
      KILN_TRY(plan_operation(operation, operations_device(schedule), schedule)));
}

namespace {

using ops::DType;

// The families' own tests run every form on 9.0.
const std::vector<ComputeCapability> kCapabilities{{7, 5}, {10, 0}, {12, 0}};

class OperationsAsPtx : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    if (!can_compile_ptx())
      GTEST_SKIP() << "no NVRTC on this machine";
    current = kCapabilities[GetParam()];
    report = {};
  }
  void TearDown() override { EXPECT_THAT(report.notes, testing::IsEmpty()); }

  /// Every sixth of them, or all.
  template <typename T>
  static std::vector<T> share_of(const std::vector<T>& all) {
    if (is_whole())
      return all;
    std::vector<T> some;
    for (std::size_t i = GetParam(); i < all.size(); i += 2 * kCapabilities.size())
      some.push_back(all[i]);
    return some;
  }
};

std::string name_of_capability(const testing::TestParamInfo<std::size_t>& each) {
  const auto& [major, minor] = kCapabilities[each.param];
  return fmt::format("{}{}", major, minor);
}
INSTANTIATE_TEST_SUITE_P(For, OperationsAsPtx,
                         testing::Range<std::size_t>(0, kCapabilities.size()),
                         name_of_capability);

TEST_P(OperationsAsPtx, NormsAreRight) {
  auto all = norm_test::configurations();
  all.insert(all.end(), norm_test::other_forms().begin(),
             norm_test::other_forms().end());
  for (const auto& form : share_of(all)) {
    SCOPED_TRACE(name_of(form));
    norm_test::with_types(form, [&]<typename T, typename W>() {
      const norm_test::Problem<T, W> problem(
          form,
          {.rows = 3, .cols = norm_test::odd_length(form), .zero_centered = true});
      if (!form.from_output) {
        EXPECT_LE(problem.errors(problem.forward()).excess, norm_test::kStoreUlp);
      }
      EXPECT_LE(problem.errors(problem.backward()).excess, norm_test::kStoreUlp);
    });
  }
}

TEST_P(OperationsAsPtx, RopeIsRight) {
  std::vector<rope_test::Form> all;
  for (const auto dtype : {DType::kF16, DType::kBf16, DType::kF32}) {
    for (const auto style : {ops::RopeStyle::kHalf, ops::RopeStyle::kInterleaved}) {
      for (const auto table :
           {rope_test::TableKind::kAngles, rope_test::TableKind::kCosSin,
            rope_test::TableKind::kCosSinF32})
        all.push_back({.forward = all.size() / 4 % 2 == 0,
                       .dtype = dtype,
                       .style = style,
                       .table = table});
    }
  }
  for (const auto& form : share_of(all)) {
    SCOPED_TRACE(testing::Message() << form);
    rope_test::with_types(form, [&]<typename T, typename U>() {
      rope_test::Problem<T, U>(form,
                               {.batch = 2,
                                .sequence = 9,
                                .q_heads = 3,
                                .k_heads = 1,
                                .dim = 80,
                                .rotary = 32},
                               {.start = 11})
          .run_and_check();
    });
  }
}

TEST_P(OperationsAsPtx, ActivationsAreRight) {
  std::vector<activation_test::Unit> all;
  for (const char* const dtype : {"f16", "bf16", "f32"}) {
    for (const char* const name : {"bias_gelu_tanh", "bias_gelu_erf", "squared_relu"})
      all.push_back(activation_test::unit_of(name, dtype, true, false));
    for (const char* const name :
         {"swiglu", "geglu_tanh", "geglu_erf", "reglu", "clamped_swiglu"})
      all.push_back(activation_test::unit_of(name, dtype, false, false));
  }
  for (const auto& unit : share_of(all)) {
    SCOPED_TRACE(name_of(unit));
    with_type(unit.dtype, [&]<typename T>() {
      activation_test::Problem<T> problem(unit, {.rows = 5, .cols = 136}, {});
      std::ignore = problem.run_and_check();
    });
  }
}

TEST_P(OperationsAsPtx, CrossEntropyIsRight) {
  const char* const dtype = GetParam() == 0 ? "bf16" : GetParam() == 1 ? "f16" : "f32";
  with_type(dtype, []<typename T>() {
    cross_entropy_test::Problem<T> problem(
        {.rows = 6, .vocabulary = 1001, .smoothing = 0.1F, .scale = 0.25F});
    std::ignore = problem.check(problem.fused());
    std::ignore = problem.check(problem.forward_and_backward());
  });
}

TEST_P(OperationsAsPtx, SoftmaxIsRight) {
  std::vector<std::pair<DType, ops::SoftmaxMask>> all;
  for (const auto mask :
       {ops::SoftmaxMask::kNone, ops::SoftmaxMask::kBytes, ops::SoftmaxMask::kCausal}) {
    for (const auto dtype : {DType::kBf16, DType::kF16, DType::kF32})
      all.emplace_back(dtype, mask);
  }
  const auto run = [](const auto& args) {
    const auto plan = ops::plan(args, operations_device({}), ops::Pointers::kChecked);
    ASSERT_TRUE(plan) << plan.error().message;
    const auto done = run_in_some_order(*plan);
    ASSERT_TRUE(done) << done.error().message;
  };
  for (const auto& [dtype, mask] : share_of(all)) {
    with_type(to_string(dtype), [&, dtype = dtype, mask = mask]<typename T>() {
      for (const softmax_test::I64 cols : {24, 300, 5000})
        softmax_test::check_operations<T>(dtype, mask,
                                          {.heads = 2, .sq = 3, .cols = cols}, run);
    });
  }
}

}  // namespace
}  // namespace kiln::test
