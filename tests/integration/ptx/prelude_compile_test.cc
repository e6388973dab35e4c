// The templates' prelude as NVRTC's machine code, and what it refuses to compile.

#include <gmock/gmock.h>

#include <map>
#include <string>

#include "render/catalog.h"
#include "tests/support/kernels/compile_to_ptx.h"
#include "util/bytes.h"
#include "util/elf.h"

namespace kiln {
namespace {

/// The machine code of what the prelude computes of floats, by entry point. `fmad` says
/// whether the compiler may make one operation of a product and a sum.
std::map<std::string, std::string> code_of_arithmetic(bool fmad) {
  const std::string text = std::string(templates::embedded().prelude) + R"(
KILN_KERNEL(32, 1) of_exp(float* out, float x, float rest) { *out = kiln_exp(x, rest); }
KILN_KERNEL(32, 1) of_rsqrt(float* out, float x) { *out = kiln_rsqrt(x); }
KILN_KERNEL(32, 1) of_sincos(float* out, const float* x) {
  kiln_sincos<2>(x, out, out + 2);
}
KILN_FUNCTION void store(float* out, kiln_activation at) {
  out[0] = at.value;
  out[1] = at.slope;
}
KILN_KERNEL(32, 1) of_silu(float* out, float u, float alpha) {
  store(out, kiln_silu<kiln_f32>(u, alpha));
}
KILN_KERNEL(32, 1) of_gelu_tanh(float* out, float u) {
  store(out, kiln_gelu_tanh<kiln_f32>(u));
}
KILN_KERNEL(32, 1) of_gelu_erf(float* out, float u) {
  store(out, kiln_gelu_erf<kiln_f32>(u));
}
)";
  const auto image = test::compile_to_image(text, {9, 0}, device::ImageKind::kCubin,
                                            {fmad ? "--fmad=true" : "--fmad=false"});
  EXPECT_TRUE(image) << image.error().message;
  std::map<std::string, std::string> code;
  if (!image)
    return code;
  const auto elf = ElfFile::parse(*image);
  EXPECT_TRUE(elf) << elf.error().message;
  for (const ElfSection& section : elf->sections()) {
    if (section.name.starts_with(".text."))
      code.emplace(section.name, as_text(section.bytes));
  }
  return code;
}

class Prelude : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::can_compile_ptx())
      GTEST_SKIP() << "no NVRTC on this machine";
  }
};

// What a function computes from a product and from its rounding error is wrong where
// the compiler adds the product unrounded. ptxas does so too, after what is
// interpreted.
TEST_F(Prelude, ComputesOfFloatsWhatTheCompilerDoesNotContract) {
  const auto contracted = code_of_arithmetic(true);
  const auto plain = code_of_arithmetic(false);
  EXPECT_EQ(contracted.size(), 6U);
  for (const auto& [name, code] : plain) {
    EXPECT_EQ(contracted.count(name), 1U) << name;
    EXPECT_TRUE(contracted.at(name) == code) << name << " differs with --fmad=false";
  }
}

TEST_F(Prelude, HasNothingThatPtxasRefusesForItsLeastArchitecture) {
  const std::string text = std::string(templates::embedded().prelude) + R"(
KILN_KERNEL(64, 1) all(float* out, kiln_u32* words) {
  const kiln_i64 i = kiln_block() * kiln_threads() + kiln_thread();
  const float x = out[i];
  out[i] = kiln_shuffle_up(x, 1) + kiln_shuffle_down(x, 1) + kiln_shuffle_xor(x, 1) +
           kiln_shuffle(x, 3);
  words[i] = kiln_ballot(x > 0.0f) + kiln_any(x > 1.0f) + kiln_all(x > 2.0f);
  kiln_sync_warp();
  kiln_atomic_add(words, 1u);
  kiln_atomic_max(words + 1, 2u);
  kiln_atomic_max(out, kiln_exp2_approx(x) + kiln_reciprocal(x) + kiln_rsqrt(x));
}
)";
  const auto image = test::compile_to_image(text, {7, 5}, device::ImageKind::kCubin);
  EXPECT_TRUE(image) << image.error().message;
}

TEST_F(Prelude, RefusesTensorCoresOfBfloatBefore80ByName) {
  const auto refused =
      test::compile_to_ptx(std::string(templates::embedded().prelude) + R"(
KILN_KERNEL(32, 1) product(float* out) {
  float d[4] = {};
  const kiln_u32 a[4] = {};
  kiln_multiply_k16<kiln_bf16>(d, a, 0, 0);
  out[0] = d[0];
}
)",
                           {7, 5});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("of kiln_bf16: from 8.0 on"));
}

}  // namespace
}  // namespace kiln
