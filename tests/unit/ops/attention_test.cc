// What attention by Kiln's own kernels refuses, and what it launches.

#include "ops/attention.h"

#include <array>
#include <cmath>
#include <vector>

#include "render/catalog.h"
#include "tests/support/attention_problem.h"
#include "tests/unit/ops/refusals.h"

namespace kiln::ops::attention_checks {
namespace {

using attention::Bias;
using attention::Pass;
using attention::Problem;
using test::attention_problem;

const Device kDevice{.name = "planned", .capability = {9, 0}};

Launches planned(const Problem& problem, const AttentionTensors& tensors = {},
                 const Device& device = kDevice) {
  auto launches = plan(AttentionCall{problem, tensors}, device);
  EXPECT_TRUE(launches) << launches.error().message;
  return launches ? *std::move(launches) : Launches{};
}

TEST(AttentionPlan, RefusesAProblemThatIsNone) {
  const Problem problem = attention_problem([](Problem& p) { p.heads = 0; });
  EXPECT_THAT(refusal(plan(AttentionCall{problem, {}}, kDevice)),
              HasSubstr("problem.heads: 0"));
}

TEST(AttentionPlan, RefusesAScaleThatIsNoNumber) {
  const Problem problem = attention_problem();
  const AttentionTensors tensors{.scale = std::nanf("")};
  EXPECT_EQ(refusal(plan(AttentionCall{problem, tensors}, kDevice)),
            "attention_forward: scale is nan");
}

TEST(AttentionPlan, RefusesANegativeNumberOfTokens) {
  const Problem problem = attention_problem();
  EXPECT_EQ(refusal(plan(AttentionCall{problem, {.tokens_kv = -1}}, kDevice)),
            "attention_forward: tokens_kv is -1");
}

TEST(AttentionPlan, SaysThatTheStridesWereForgotten) {
  Problem problem = attention_problem();
  problem.q = problem.k = problem.v = problem.o = {};
  EXPECT_THAT(refusal(plan(AttentionCall{problem, {}}, kDevice)),
              HasSubstr("call set_strides()"));
}

TEST(AttentionPlan, RefusesToWriteRowsThatAreTheSameMemory) {
  Problem problem = attention_problem();
  problem.k.head = 0;  // read alone
  EXPECT_TRUE(plan(AttentionCall{problem, {}}, kDevice));
  problem.pass = Pass::kBackward;
  problem.training = true;
  EXPECT_THAT(refusal(plan(AttentionCall{problem, {}}, kDevice)),
              HasSubstr("grad_k: two elements would share an address"));
}

TEST(AttentionPlan, RefusesToWriteRowsThatOverlapAndTakesThoseWithGaps) {
  const Problem whole = attention_problem();
  const auto answer = [](const Problem& problem) {
    return plan(AttentionCall{problem, {}}, kDevice);
  };
  Problem problem = whole;
  problem.o.head = whole.dv - 8;
  EXPECT_THAT(refusal(answer(problem)),
              HasSubstr("o: two elements would share an address"));
  problem = whole;
  problem.o.sequence = whole.heads * whole.dv - 8;
  EXPECT_THAT(refusal(answer(problem)),
              HasSubstr("o: two elements would share an address"));
  problem = whole;
  problem.batch = 2;
  problem.o.batch = (whole.sq - 1) * whole.o.sequence;
  EXPECT_THAT(refusal(answer(problem)),
              HasSubstr("o: two elements would share an address"));
  problem.o.batch = whole.sq * whole.o.sequence + 8;
  EXPECT_TRUE(answer(problem));
  problem = whole;  // a slice of a wider tensor
  problem.o.head += 64;
  problem.o.sequence = whole.heads * problem.o.head;
  problem.o.batch = whole.sq * problem.o.sequence;
  EXPECT_TRUE(answer(problem));
}

TEST(AttentionPlan, OfGroupsThatLieApartRefusesToWriteThoseThatOverlap) {
  Problem problem = attention_problem([](Problem& p) {
    p.heads = 8;
    p.kv_heads = 2;
  });
  problem.o.group = 6 * problem.o.head;
  problem.o.sequence = 2 * problem.o.group;
  problem.o.batch = problem.sq * problem.o.sequence;
  EXPECT_TRUE(plan(AttentionCall{problem, {}}, kDevice));
  problem.o.group = 3 * problem.o.head;
  EXPECT_THAT(refusal(plan(AttentionCall{problem, {}}, kDevice)),
              HasSubstr("o: two elements would share an address"));
}

TEST(AttentionPlan, LooksAtTheTensorsOfItsPassAlone) {
  alignas(16) std::array<std::byte, 32> memory{};
  const AttentionTensors tensors{.grad_v = memory.data() + 2};
  Problem problem = attention_problem();
  EXPECT_EQ(planned(problem, tensors).front().kernel, "attention_fwd");
  problem.pass = Pass::kBackward;
  problem.training = true;
  EXPECT_EQ(planned(problem, tensors).front().kernel, "attention_plain_bwd");
}

TEST(AttentionPlan, RefusesAWorkspaceThatIsTooSmall) {
  const Problem problem = attention_problem([](Problem& p) {
    p.pass = Pass::kBackward;
    p.training = true;
  });
  std::array<float, 4> memory{};
  const AttentionTensors tensors{.workspace = memory.data(),
                                 .workspace_bytes = sizeof(memory)};
  EXPECT_THAT(refusal(plan(AttentionCall{problem, tensors}, kDevice)),
              HasSubstr("workspace"));
  EXPECT_EQ(attention_workspace_bytes(problem), 2U * 4 * 256 * 4);
  EXPECT_EQ(attention_workspace_bytes(attention_problem()), 0U);
}

TEST(AttentionPlan, IsOneLaunchForwardAndTwoBackwardAndOneForABias) {
  Problem problem = attention_problem();
  EXPECT_EQ(planned(problem).size(), 1U);
  problem.pass = Pass::kBackward;
  problem.training = true;
  const Launches backward = planned(problem);
  ASSERT_EQ(backward.size(), 2U);
  EXPECT_EQ(backward[1].entry, "attention_bwd_kv");
  problem.bias_kind = Bias::kPostScale;
  problem.bias_gradient = true;
  const Launches with_bias = planned(problem);
  ASSERT_EQ(with_bias.size(), 3U);
  EXPECT_EQ(with_bias[2].kernel, "attention_bias_bwd");
}

TEST(AttentionPlan, GoesToTheFloatKernelWhereATensorIsNotAligned) {
  alignas(16) std::array<std::byte, 32> memory{};
  const AttentionTensors tensors{.q = memory.data() + 2};
  EXPECT_EQ(planned(attention_problem(), tensors).front().kernel,
            "attention_plain_fwd");
}

class AttentionPointers : public testing::Test {
 protected:
  AttentionPointers() {
    at(forward_.q), at(forward_.k), at(forward_.v), at(forward_.o);
    backward_ = forward_;
    at(backward_.stats), at(backward_.grad_o), at(backward_.workspace);
    at(backward_.grad_q), at(backward_.grad_k), at(backward_.grad_v);
    backward_.workspace_bytes = attention_workspace_bytes(of_backward_);
  }
  /// Memory of its own, of which the address alone counts.
  template <typename Type>
  void at(Type*& pointer) {
    pointer = reinterpret_cast<Type*>(next_ += std::uint64_t{1} << 30U);
  }
  /// That `member` is refused in each pass where it is not set.
  template <typename Member>
  void expect_refused(Member member, const std::string& why) {
    for (const auto& [problem, whole] :
         {std::pair{of_forward_, forward_}, std::pair{of_backward_, backward_}}) {
      AttentionTensors tensors = whole;
      ASSERT_TRUE(check_pointers(AttentionCall{problem, tensors}));
      if (tensors.*member != nullptr)
        continue;
      at(tensors.*member);
      EXPECT_THAT(refusal(check_pointers(AttentionCall{problem, tensors})),
                  HasSubstr(why + ": it would be ignored"));
    }
  }

  const Problem of_forward_ = attention_problem();
  const Problem of_backward_ = test::backward_of(of_forward_);
  AttentionTensors forward_;
  AttentionTensors backward_;
  std::uint64_t next_ = 0;
};

TEST_F(AttentionPointers, AreRefusedWhereProblemAndOptionsGiveThemNoUse) {
  using Tensors = AttentionTensors;
  const std::string no_dropout = " is set, and problem.dropout is 0";
  const std::string not_packed = " is set, and problem.layout is not kThd";
  const std::string not_padded = " is set, and problem.mask has no padding";
  expect_refused(
      &Tensors::bias,
      "bias is set, and problem.bias_kind is neither kPostScale nor kBoolean");
  expect_refused(&Tensors::cu_seqlens_q, "cu_seqlens_q" + not_packed);
  expect_refused(&Tensors::cu_seqlens_kv, "cu_seqlens_kv" + not_packed);
  expect_refused(&Tensors::lengths_q, "lengths_q" + not_padded);
  expect_refused(&Tensors::lengths_kv, "lengths_kv" + not_padded);
  expect_refused(&Tensors::dropout_seed, "dropout_seed" + no_dropout);
  expect_refused(&Tensors::dropout_offset, "dropout_offset" + no_dropout);
  expect_refused(&Tensors::stats, "stats is set, and options.stats is false");
  at(forward_.grad_bias);  // ignored by the forward pass, as all gradients
  at(forward_.grad_o), at(forward_.grad_q), at(forward_.grad_k), at(forward_.grad_v);
  expect_refused(&Tensors::grad_bias,
                 "grad_bias is set, and options.bias_gradient is false");
}

std::vector<Problem> problems_of_every_kind() {
  std::vector<Problem> all;
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32})
    for (std::int64_t dqk = 1; dqk <= 256; dqk += dqk % 8 == 0 ? 8 : 7)
      for (const std::int64_t dv : {dqk, std::int64_t{64}, std::int64_t{256}})
        for (const Bias bias :
             {Bias::kNone, Bias::kPostScale, Bias::kAlibi, Bias::kBoolean})
          for (const double dropout : {0.0, 0.5})
            for (const Pass pass : {Pass::kForward, Pass::kBackward})
              all.push_back(attention_problem([&](Problem& p) {
                p.dtype = dtype;
                p.dqk = dqk;
                p.dv = dv;
                p.bias_kind = bias;
                p.dropout = dropout;
                p.pass = pass;
                p.training = true;
                p.bias_gradient = pass == Pass::kBackward && bias == Bias::kPostScale;
              }));
  return all;
}

void expect_fits(const render::TemplateCatalog& catalog, const Launch& launch,
                 ComputeCapability capability, std::uint32_t shared_kib) {
  const auto kernel = catalog.find(launch.kernel);
  ASSERT_TRUE(kernel) << launch.kernel;
  const auto params = (*kernel)->canonical(launch.parameters);
  ASSERT_TRUE(params) << params.error().message;
  EXPECT_EQ((*kernel)->excluded(*params, capability), std::nullopt);
  const auto geometry = (*kernel)->geometry(*params, launch.extents, launch.entry);
  ASSERT_TRUE(geometry) << geometry.error().message;
  EXPECT_LE(geometry->shared_bytes, shared_kib * 1024);
}

/// Every problem is launched with kernels that there are, for that device, with tiles
/// that it has shared memory for.
TEST(AttentionPlan, FitsEveryDevice) {
  const auto catalog = render::TemplateCatalog::open(templates::embedded()).value();
  const std::vector<std::pair<ComputeCapability, std::uint32_t>> devices{
      {{7, 0}, 96}, {{7, 5}, 64},  {{8, 0}, 163},  {{8, 6}, 99}, {{8, 7}, 163},
      {{8, 9}, 99}, {{9, 0}, 227}, {{10, 0}, 227}, {{12, 0}, 99}};
  int launched = 0;
  for (const Problem& problem : problems_of_every_kind()) {
    for (const auto& [capability, shared_kib] : devices) {
      SCOPED_TRACE(to_string(problem) + " on " + to_string(capability));
      for (const Launch& launch :
           planned(problem, {}, {.name = "planned", .capability = capability})) {
        expect_fits(catalog, launch, capability, shared_kib);
        ++launched;
      }
    }
  }
  EXPECT_GT(launched, 10000);
}

}  // namespace
}  // namespace kiln::ops::attention_checks
