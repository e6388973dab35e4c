// A block of a model is trained on a simulated device, with a cache that `kiln warm
// --preset` filled and nothing else may fill: what its operations load is all there,
// for another batch and other lengths than the preset has. The compiler is the fake
// one, so no kernel of this cache could be launched.

#include <cstdint>
#include <string>

#include "tests/integration/library/library_service.h"
#include "tests/support/attention_problem.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using ops::DType;

// No preset has this one.
constexpr std::int64_t kBatch = 3;

/// What one step of training loads, with a service that builds nothing.
class PresetTrainingTest : public test::LibraryTest {
 protected:
  void warm(const Arguments& flags) {
    test::KilnProgram kiln;
    kiln.use_fake_nvrtc();
    kiln.set("KILN_CACHE_DIR", temp_.path() / "cache");
    Arguments command{"warm", "--arch", "9.0", "--preset"};
    command.insert(command.end(), flags.begin(), flags.end());
    const auto warmed = kiln.run(command);
    EXPECT_EQ(warmed.status, 0) << warmed.text();
    Options with = options(driver_);
    with.nvrtc = test::paths::kFakeNvrtc;
    with.no_jit = true;
    service_ = open(with);
    ASSERT_TRUE(service_);
  }

  /// Each loads what the operation launches: "done", or what is missing.
  template <typename Args>
  [[nodiscard]] std::string loads(const Args& args) {
    return outcome(ops::prepare(*service_, device(), args));
  }
  template <typename Forward, typename Backward>
  [[nodiscard]] std::string loads(const Forward& forward, const Backward& backward) {
    const std::string first = loads(forward);
    return first == "done" ? loads(backward) : first;
  }
  [[nodiscard]] std::string attention(DType dtype, const test::Sizes& q,
                                      const test::Sizes& k) {
    const auto problem =
        test::problem_of(dtype, q, k, {.mask = ops::AttentionMask::kCausal});
    const auto forward =
        ops::prepare_attention_forward(*service_, device(), problem, {.stats = true});
    if (!forward)
      return forward.error().message;
    const auto backward = ops::prepare_attention_backward(*service_, device(), problem);
    return backward ? "done" : backward.error().message;
  }

  const test::SimulatedDriver driver_{"9.0"};

 private:
  static std::string outcome(const Result<void>& result) {
    return result ? "done" : result.error().message;
  }
  [[nodiscard]] const Device& device() { return service_->devices().front(); }

  std::optional<Service> service_;
};

template <typename Args>
Args rms_norm(std::int64_t rows, bool residual) {
  Args args{.dtype = DType::kBf16, .rows = rows, .cols = 4096};
  args.casting = ops::RmsNormCasting::kLlama;
  args.adds_residual = residual;
  return args;
}

template <typename Args>
Args swiglu(ops::GluLayout layout, std::int64_t rows) {
  return {.dtype = DType::kBf16,
          .kind = ops::GluKind::kSwiglu,
          .layout = layout,
          .rows = rows,
          .cols = 14336};
}

template <typename Args>
Args bias_gelu(std::int64_t rows) {
  return {.dtype = DType::kF16,
          .kind = ops::ActivationKind::kGeluTanh,
          .has_bias = true,
          .rows = rows,
          .cols = 24576};
}

template <typename Args>
Args cross_entropy(std::int64_t rows) {
  return {.dtype = DType::kBf16, .rows = rows, .vocabulary = 128256};
}

template <typename Args>
Args softmax(DType dtype, std::int64_t length) {
  Args args{.dtype = dtype, .batch = kBatch, .heads = 32, .sq = length, .skv = length};
  args.mask = ops::SoftmaxMask::kCausal;
  return args;
}

ops::RopeTensor heads_of(std::int64_t length, std::int64_t heads, std::int64_t dim) {
  const ops::RopeStrides strides{
      .batch = length * heads * dim, .sequence = heads * dim, .head = dim};
  return {.heads = heads, .out_strides = strides, .in_strides = strides};
}

TEST_F(PresetTrainingTest, OfLlamaLoadsNothingThatWarmDidNotBuild) {
  warm({"llama-3-8b"});
  static constexpr float kTable = 0;
  for (const std::int64_t length : {1, 64, 100, 1000, 2048, 8192}) {
    const std::int64_t rows = kBatch * length;
    SCOPED_TRACE(length);
    for (const bool residual : {false, true})
      EXPECT_EQ(loads(rms_norm<ops::RmsNormForward>(rows, residual),
                      rms_norm<ops::RmsNormBackward>(rows, residual)),
                "done");
    for (const auto& [angles, dtype] :
         {std::pair(true, DType::kUnset), std::pair(false, DType::kF32),
          std::pair(false, DType::kBf16)}) {
      const ops::RopeArguments rope{.dtype = DType::kBf16,
                                    .style = ops::RopeStyle::kHalf,
                                    .batch = kBatch,
                                    .sequence = length,
                                    .head_dim = 128,
                                    .rotary_dim = 128,
                                    .q = heads_of(length, 32, 128),
                                    .k = heads_of(length, 8, 128),
                                    .table = {.angles = angles ? &kTable : nullptr,
                                              .cos = angles ? nullptr : &kTable,
                                              .sin = angles ? nullptr : &kTable,
                                              .dtype = dtype,
                                              .positions = length,
                                              .columns = 64}};
      EXPECT_EQ(loads(ops::RopeForward{rope}, ops::RopeBackward{rope}), "done");
    }
    EXPECT_EQ(
        attention(DType::kBf16, {kBatch, 32, length, 128}, {kBatch, 8, length, 128}),
        "done");
    EXPECT_EQ(loads(softmax<ops::SoftmaxForward>(DType::kBf16, length),
                    softmax<ops::SoftmaxBackward>(DType::kBf16, length)),
              "done");
    for (const auto layout : {ops::GluLayout::kPacked, ops::GluLayout::kSplit})
      EXPECT_EQ(loads(swiglu<ops::GluForward>(layout, rows),
                      swiglu<ops::GluBackward>(layout, rows)),
                "done");
    EXPECT_EQ(loads(cross_entropy<ops::CrossEntropy>(rows)), "done");
    EXPECT_EQ(loads(cross_entropy<ops::CrossEntropyForward>(rows),
                    cross_entropy<ops::CrossEntropyBackward>(rows)),
              "done");
  }
  EXPECT_THAT(take_kinds(),
              AllOf(Contains(Event::Kind::kHit),
                    Each(AnyOf(Event::Kind::kHit, Event::Kind::kLoaded))));
}

TEST_F(PresetTrainingTest, OfGptNeoXLoadsNothingThatWarmDidNotBuild) {
  warm({"gpt-neox-20b"});
  for (const std::int64_t length : {100, 1000, 2048}) {
    const std::int64_t rows = kBatch * length;
    SCOPED_TRACE(length);
    EXPECT_EQ(
        loads(ops::LayerNormForward{.dtype = DType::kF16, .rows = rows, .cols = 6144},
              ops::LayerNormBackward{.dtype = DType::kF16, .rows = rows, .cols = 6144}),
        "done");
    EXPECT_EQ(
        attention(DType::kF16, {kBatch, 64, length, 96}, {kBatch, 64, length, 96}),
        "done");
    EXPECT_EQ(loads(softmax<ops::SoftmaxForward>(DType::kF16, length),
                    softmax<ops::SoftmaxBackward>(DType::kF16, length)),
              "done");
    EXPECT_EQ(loads(bias_gelu<ops::ActivationForward>(rows),
                    bias_gelu<ops::ActivationBackward>(rows)),
              "done");
  }
}

TEST_F(PresetTrainingTest, WithoutAttentionStopsThereAndSaysWhy) {
  warm({"llama-3-8b", "--no-attention"});
  EXPECT_EQ(loads(rms_norm<ops::RmsNormForward>(100, true)), "done");
  EXPECT_THAT(attention(DType::kBf16, {kBatch, 32, 1000, 128}, {kBatch, 8, 1000, 128}),
              AllOf(HasSubstr("attention_fwd"), HasSubstr("no_jit")));
}

}  // namespace
}  // namespace kiln
