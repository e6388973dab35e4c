// Attention's kernels on real devices against double: the reference, the tensors and
// the bounds of the tests on a CPU (tests/integration/attention_kernel).

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/attention_cases.h"
#include "tests/gpu/attention_on_device.h"
#include "tests/gpu/operations_on_device.h"
#include "tests/integration/attention_kernel/check.h"

namespace kiln::gpu_test {
namespace {

using attention::Bias;
using attention::Mask;
using attention::Problem;
using attention_test::Call;
using attention_test::expect_same_bits;
using ops::DType;

std::vector<AttentionCase> cases() {
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
      in_layout("bf16_64_bhsd", attention::Layout::kBhsd),
      one("f16_128_bias_dropout", DType::kF16, 128,
          {.bias_kind = Bias::kPostScale, .dropout = 0.25}),
      one("f32_64_bias", DType::kF32, 64, {.bias_kind = Bias::kPostScale}),
      one("f32_64_alibi", DType::kF32, 64, {.bias_kind = Bias::kAlibi}),
      one("f32_64_dropout", DType::kF32, 64, {.dropout = 0.5}),
      one("f32_128", DType::kF32, 128, {.mask = Mask::kCausal}),
  };
}

/// Of kernels that the tests on a CPU have on other devices only.
std::vector<AttentionCase> device_cases() {
  return {
      one("bf16_64_bias", DType::kBf16, 64, {.bias_kind = Bias::kPostScale}),
      one("bf16_64_boolean", DType::kBf16, 64, {.bias_kind = Bias::kBoolean}),
      biased("b1ss"),
      biased("b11s"),
      one("bf16_64_alibi", DType::kBf16, 64, {.bias_kind = Bias::kAlibi}),
      one("bf16_64_dropout", DType::kBf16, 64, {.dropout = 0.5}),
      one("bf16_256_alibi_dropout", DType::kBf16, 256,
          {.bias_kind = Bias::kAlibi, .dropout = 0.25}),
      {"bf16_128_long",
       test::sized({1, 2, 1100, 128}, {1, 2, 1300, 128},
                   {.dtype = DType::kBf16, .mask = Mask::kCausalBottomRight})},
  };
}

class GpuAttention : public AttentionCasesTest {
 protected:
  /// Both passes on that device.
  template <typename T>
  static std::unique_ptr<Call<T>> run(const AttentionCase& which) {
    auto call = std::make_unique<Call<T>>(problem_of(which), which.setting);
    call->run_both();
    return call;
  }

  static void check_twice(const AttentionCase& which) {
    with_type(which, [&]<typename T>() {
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

INSTANTIATE_TEST_SUITE_P(Problems, GpuAttention, testing::ValuesIn(cases()), name_of);

TEST_P(GpuAttention, IsRightAndHasTheSameBitsTwice) {
  check_twice(GetParam());
}

class GpuAttentionOnDevices : public GpuAttention {
 protected:
  void SetUp() override {
    GpuAttention::SetUp();
    if (!IsSkipped() && driver().is_simulated)
      GTEST_SKIP() << "too much for an interpreter";
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
                                             {.bias_kind = Bias::kPostScale})),
                         name_of);

TEST_P(GpuAttentionCalls, HaveTheSameBitsInAGraph) {
  with_type(GetParam(), [&]<typename T>() {
    on_each_kind_of_device([&] {
      const auto direct = run<T>(GetParam());
      const AttentionInGraphs graphs;
      const auto captured = run<T>(GetParam());
      expect_same_bits(*direct, *captured);
    });
  });
}

TEST_P(GpuAttentionCalls, AreRightOnEveryDeviceAndTheSameOnEqualOnes) {
  with_type(GetParam(), [&]<typename T>() {
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
