// That the library has what operations choose for the shapes that callers' tests use.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

#include "attention/kernel_choice.h"
#include "ops/plans.h"
#include "request/selection.h"
#include "tests/support/attention_problem.h"
#include "tests/support/cpu_kernel/run_plan.h"

namespace kiln {
namespace {

using ops::DType;

constexpr std::array kDTypes{DType::kF16, DType::kBf16, DType::kF32};

/// Kernels that were asked for and are not there.
class Missing {
 public:
  template <typename Args>
  void ask(const Args& args) {
    const auto plan =
        ops::plan(args, kiln_cpu::planned_device(), ops::Pointers::kIgnored);
    ASSERT_TRUE(plan) << plan.error().message;
    for (const ops::Launch& launch : *plan) ask(launch);
  }
  void ask(const ops::Launch& launch) {
    if (kiln_cpu::find_variant(launch, kiln_cpu::kernels_of_program()) == nullptr)
      names_.insert(request::format_template(launch.kernel, launch.parameters));
  }
  [[nodiscard]] const std::set<std::string>& names() const { return names_; }

 private:
  std::set<std::string> names_;
};

TEST(CommonShapes, OfSoftmaxAreCompiled) {
  Missing missing;
  for (const DType dtype : kDTypes) {
    for (const auto mask : {ops::SoftmaxMask::kNone, ops::SoftmaxMask::kBytes,
                            ops::SoftmaxMask::kCausal}) {
      for (const int cols : {8, 32, 60, 128, 2048}) {
        missing.ask(
            ops::SoftmaxForward{.dtype = dtype, .sq = 4, .skv = cols, .mask = mask});
        missing.ask(
            ops::SoftmaxBackward{.dtype = dtype, .sq = 4, .skv = cols, .mask = mask});
      }
    }
  }
  EXPECT_THAT(missing.names(), testing::IsEmpty());
}

TEST(CommonShapes, OfNormsAreCompiled) {
  Missing missing;
  const auto ask = [&](auto args, DType dtype, int cols, bool residual) {
    args.dtype = dtype;
    args.rows = 5;
    args.cols = cols;
    args.adds_residual = residual;
    missing.ask(args);
  };
  for (const DType dtype : kDTypes) {
    for (const int cols : {16, 128, 512}) {
      for (const bool residual : {false, true}) {
        if (residual && cols > 128)
          continue;
        ask(ops::LayerNormForward{}, dtype, cols, residual);
        ask(ops::LayerNormBackward{}, dtype, cols, residual);
        ask(ops::RmsNormForward{}, dtype, cols, residual);
        ask(ops::RmsNormForward{.casting = ops::RmsNormCasting::kGemma}, dtype, cols,
            residual);
        ask(ops::RmsNormBackward{}, dtype, cols, residual);
      }
    }
  }
  for (const int cols : {16, 128, 512})
    ask(ops::RmsNormForward{.casting = ops::RmsNormCasting::kLlama}, DType::kF16, cols,
        false);
  for (const int cols : {16, 128}) {
    for (const bool residual : {false, true})
      ask(ops::RmsNormForward{.casting = ops::RmsNormCasting::kLlama}, DType::kBf16,
          cols, residual);
    ask(ops::LayerNormForward{.weight_dtype = DType::kF32}, DType::kBf16, cols, false);
    ask(ops::LayerNormForward{.has_bias = false}, DType::kF32, cols, false);
  }
  EXPECT_THAT(missing.names(), testing::IsEmpty());
}

TEST(CommonShapes, OfActivationsAreCompiled) {
  Missing missing;
  const auto ask = [&](auto args, DType dtype) {
    args.dtype = dtype;
    args.rows = 5;
    args.cols = 48;
    missing.ask(args);
  };
  for (const DType dtype : kDTypes) {
    for (const auto kind :
         {ops::ActivationKind::kGeluTanh, ops::ActivationKind::kGeluErf,
          ops::ActivationKind::kSquaredRelu}) {
      const bool has_bias = kind != ops::ActivationKind::kSquaredRelu;
      ask(ops::ActivationForward{.kind = kind, .has_bias = has_bias}, dtype);
      ask(ops::ActivationBackward{.kind = kind, .has_bias = has_bias}, dtype);
    }
    for (const auto kind :
         {ops::GluKind::kSwiGlu, ops::GluKind::kGeGluTanh, ops::GluKind::kGeGluErf}) {
      for (const bool has_bias : {false, true}) {
        ask(ops::GluForward{.kind = kind, .has_bias = has_bias}, dtype);
        ask(ops::GluBackward{.kind = kind, .has_bias = has_bias}, dtype);
      }
    }
  }
  EXPECT_THAT(missing.names(), testing::IsEmpty());
}

TEST(CommonShapes, OfCrossEntropyAreCompiled) {
  Missing missing;
  for (const DType dtype : kDTypes) {
    missing.ask(ops::CrossEntropy{.dtype = dtype, .rows = 4, .vocabulary = 100});
    missing.ask(ops::CrossEntropyForward{.dtype = dtype, .rows = 4, .vocabulary = 100});
    missing.ask(
        ops::CrossEntropyBackward{.dtype = dtype, .rows = 4, .vocabulary = 100});
  }
  EXPECT_THAT(missing.names(), testing::IsEmpty());
}

TEST(CommonShapes, OfAttentionAreCompiled) {
  Missing missing;
  const auto ask = [&](const ops::AttentionProblem& values) {
    for (const auto pass : {attention::Pass::kForward, attention::Pass::kBackward}) {
      attention::Problem problem = test::problem_of(values);
      problem.pass = pass;
      auto choice = attention::choose_kernel(problem, {9, 0});
      ASSERT_TRUE(choice) << choice.error().message;
      missing.ask(ops::Launch{.kernel = std::move(choice->kernel),
                              .parameters = std::move(choice->parameters),
                              .extents = {},
                              .arguments = {}});
    }
  };
  for (const DType dtype : kDTypes) {
    for (const int length : {16, 100}) {
      ops::AttentionProblem problem{
          .dtype = dtype, .heads = 2, .sq = length, .skv = length};
      for (const int dim : {16, 32, 64, 128}) {
        problem.dqk = dim;
        ask(problem);
      }
      problem.dqk = 64;
      problem.bias = ops::AttentionBias::kPostScale;
      ask(problem);
      problem.bias = ops::AttentionBias::kNone;
      problem.dropout = 0.5;
      ask(problem);
    }
  }
  EXPECT_THAT(missing.names(), testing::IsEmpty());
}

}  // namespace
}  // namespace kiln
