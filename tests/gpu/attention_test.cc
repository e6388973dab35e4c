// Attention's kernels on real devices against double: the reference, the tensors and
// the bounds of the tests on a CPU (tests/integration/attention_kernel).

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/attention_on_device.h"
#include "tests/gpu/operations_on_device.h"
#include "tests/integration/attention_kernel/check.h"

namespace kiln::gpu_test {
namespace {

using attention::Bias;
using attention::Layout;
using attention::Mask;
using attention::Problem;
using attention_test::Call;
using attention_test::Setting;
using ops::DType;

struct Case {
  const char* name;
  Problem problem;
  Setting setting{};
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest calls it
void PrintTo(const Case& each, std::ostream* out) {
  *out << each.name;
}

Case packed(const char* name, DType dtype, std::int64_t dqk, std::int64_t dv) {
  return {name,
          {.dtype = dtype,
           .batch = 4,
           .heads = 4,
           .kv_heads = 2,
           .sq = 70,
           .skv = 90,
           .dqk = dqk,
           .dv = dv,
           .layout = Layout::kThd,
           .mask = Mask::kPaddingCausalBottomRight},
          {.lengths_q = {70, 33, 0, 1}, .lengths_kv = {20, 90, 7, 5}}};
}

Case padded(const char* name, DType dtype, std::int64_t dim) {
  return {name,
          {.dtype = dtype,
           .batch = 4,
           .heads = 2,
           .sq = 70,
           .skv = 90,
           .dqk = dim,
           .mask = Mask::kPadding},
          {.lengths_q = {70, 33, 1, 0}, .lengths_kv = {20, 90, 7, 64}}};
}

/// One sequence of 130 queries and 150 keys, with what `more` has.
Case one(const char* name, DType dtype, std::int64_t dim, Problem more = {}) {
  more.dtype = dtype;
  more.heads = more.heads == 0 ? 2 : more.heads;
  more.sq = 130;
  more.skv = 150;
  more.dqk = dim;
  return {name, more};
}

Problem group(Mask mask, std::int64_t dv = 0) {
  return {.heads = 4, .kv_heads = 1, .dv = dv, .mask = mask};
}

Problem window(std::int64_t left, std::int64_t right) {
  return {.window_left = left, .window_right = right};
}

std::vector<Case> cases() {
  return {
      one("f16_64_causal_groups", DType::kF16, 64, group(Mask::kCausalBottomRight)),
      one("bf16_64_window", DType::kBf16, 64, window(20, 30)),
      one("bf16_128_causal", DType::kBf16, 128, {.mask = Mask::kCausal}),
      one("f16_128_window", DType::kF16, 128, window(40, 0)),
      one("bf16_192_128_groups", DType::kBf16, 192,
          group(Mask::kCausalBottomRight, 128)),
      one("f16_256", DType::kF16, 256),
      one("bf16_256_causal", DType::kBf16, 256, {.mask = Mask::kCausalBottomRight}),
      packed("bf16_64_packed", DType::kBf16, 64, 64),
      packed("f16_192_128_packed", DType::kF16, 192, 128),
      padded("f16_64_padded", DType::kF16, 64),
      one("f16_128_bias_dropout", DType::kF16, 128,
          {.bias = Bias::kPostScale, .dropout = 0.25}),
      one("f32_64_bias", DType::kF32, 64, {.bias = Bias::kPostScale}),
      one("f32_64_alibi", DType::kF32, 64, {.bias = Bias::kAlibi}),
      one("f32_64_dropout", DType::kF32, 64, {.dropout = 0.5}),
      one("f32_128", DType::kF32, 128, {.mask = Mask::kCausal}),
  };
}

/// Of kernels that the tests on a CPU have on other devices only.
std::vector<Case> device_cases() {
  return {
      one("bf16_64_bias", DType::kBf16, 64, {.bias = Bias::kPostScale}),
      one("bf16_64_alibi", DType::kBf16, 64, {.bias = Bias::kAlibi}),
      one("bf16_64_dropout", DType::kBf16, 64, {.dropout = 0.5}),
      one("bf16_256_alibi_dropout", DType::kBf16, 256,
          {.bias = Bias::kAlibi, .dropout = 0.25}),
      {"bf16_128_long",
       {.dtype = DType::kBf16,
        .heads = 2,
        .sq = 1100,
        .skv = 1300,
        .dqk = 128,
        .mask = Mask::kCausalBottomRight}},
  };
}

class GpuAttention : public GpuResultsTest, public testing::WithParamInterface<Case> {
 protected:
  static Problem problem_of(const Case& which) {
    Problem problem = which.problem;
    if (which.setting.lengths_q.empty()) {
      problem.sq = many(problem.sq, 34);
      problem.skv = many(problem.skv, 50);
    }
    problem = attention_test::problem_of(problem);
    problem.bias_gradient = problem.bias == Bias::kPostScale;
    return problem;
  }
  template <typename Body>
  static void with_type(const Case& which, const Body& body) {
    test::with_type(ops::to_string(which.problem.dtype), body);
  }

  /// Both passes on that device.
  template <typename T>
  static std::unique_ptr<Call<T>> run(const Case& which) {
    auto call = std::make_unique<Call<T>>(problem_of(which), which.setting);
    call->run_both();
    return call;
  }

  template <typename T>
  static void expect_same_bits(const Call<T>& a, const Call<T>& b) {
    EXPECT_TRUE(same_bits(a.o(), b.o()));
    EXPECT_TRUE(same_bits(a.stats(), b.stats()));
    EXPECT_TRUE(same_bits(a.grad_q(), b.grad_q()));
    EXPECT_TRUE(same_bits(a.grad_k(), b.grad_k()));
    EXPECT_TRUE(same_bits(a.grad_v(), b.grad_v()));
    EXPECT_TRUE(same_bits(a.grad_bias(), b.grad_bias()));
  }

  static void check_twice(const Case& which) {
    with_type(which, [&]<typename T>(std::type_identity<T>) {
      on_each_kind_of_device([&] {
        const auto once = run<T>(which);
        if (HasFatalFailure())
          return;
        attention_test::check(*once, true);
        expect_same_bits(*once, *run<T>(which));
      });
    });
  }
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Problems, GpuAttention, testing::ValuesIn(cases()), name_of);

TEST_P(GpuAttention, IsRightAndHasTheSameBitsTwice) {
  check_twice(GetParam());
}

class GpuAttentionOnDevices : public GpuAttention {
 protected:
  void SetUp() override {
    GpuAttention::SetUp();
    if (!IsSkipped() && driver().is_simulated)
      GTEST_SKIP() << "for real devices";
  }
};

INSTANTIATE_TEST_SUITE_P(Problems, GpuAttentionOnDevices,
                         testing::ValuesIn(device_cases()), name_of);

TEST_P(GpuAttentionOnDevices, IsRightAndHasTheSameBitsTwice) {
  check_twice(GetParam());
}

class GpuAttentionCalls : public GpuAttention {};

INSTANTIATE_TEST_SUITE_P(Problems, GpuAttentionCalls,
                         testing::Values(packed("f16_64_packed", DType::kF16, 64, 64),
                                         one("f32_64_bias", DType::kF32, 64,
                                             {.bias = Bias::kPostScale})),
                         name_of);

// A graph of the simulated driver computes nothing, whoever stands in.
TEST_P(GpuAttentionCalls, HaveTheSameBitsInAGraph) {
  with_type(GetParam(), [&]<typename T>(std::type_identity<T>) {
    on_each_kind_of_device([&] {
      const auto direct = run<T>(GetParam());
      const AttentionInGraphs graphs;
      const auto captured = run<T>(GetParam());
      if (!driver().is_simulated)
        expect_same_bits(*direct, *captured);
    });
  });
  KILN_SKIP_NUMBERS_IF_SIMULATED();
}

TEST_P(GpuAttentionCalls, AreRightOnEveryDeviceAndTheSameOnEqualOnes) {
  with_type(GetParam(), [&]<typename T>(std::type_identity<T>) {
    std::vector<std::pair<ComputeCapability, std::unique_ptr<Call<T>>>> calls;
    for (const Device& device : devices()) {
      SCOPED_TRACE(testing::Message() << "on device " << device.ordinal);
      const OperationsOnDevice scope(service(), device);
      auto call = run<T>(GetParam());
      if (HasFatalFailure())
        return;
      attention_test::check(*call, true);
      for (const auto& [capability, other] : calls) {
        if (capability == device.capability)
          expect_same_bits(*other, *call);
      }
      calls.emplace_back(device.capability, std::move(call));
    }
  });
}

}  // namespace
}  // namespace kiln::gpu_test
