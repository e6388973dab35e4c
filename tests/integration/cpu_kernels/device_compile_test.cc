// What the prelude gives kernels on a CPU, it gives them on devices: the right twins of
// the broken kernels, which use all of it, through real NVRTC.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "compile/worker/nvrtc.h"
#include "compile/worker/nvrtc_compile.h"
#include "render/catalog.h"
#include "tests/support/compile_jobs.h"
#include "tests/support/paths.h"
#include "util/bytes.h"
#include "util/elf.h"

namespace kiln {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Prelude, CompilesForDevicesToo) {
  const auto nvrtc = compile::open_nvrtc(test::real_nvrtc());
  if (!nvrtc) {
    GTEST_SKIP() << "no NVRTC on this machine";
  }
  const std::vector<std::filesystem::path> folders{
      test::paths::source("tests/integration/cpu_kernels/defects")};
  const auto catalog = render::TemplateCatalog::open(templates::embedded(), folders);
  ASSERT_TRUE(catalog) << catalog.error().message;
  const auto kernels = catalog->family("defects").value();
  ASSERT_FALSE(kernels.empty());
  for (const auto& kernel : kernels) {
    const auto params = kernel->canonical({{"broken", "false"}});
    ASSERT_TRUE(params) << params.error().message;
    auto job =
        test::job_for(test::real_nvrtc(), kernel->render(*params).value().text,
                      {.architecture = {{7, 5}}, .kind = device::ImageKind::kCubin});
    job.options.emplace_back("--std=c++17");
    const auto output = compile::compile_here(
        **nvrtc, job, std::chrono::steady_clock::now() + std::chrono::minutes(1),
        nullptr);
    EXPECT_TRUE(output) << kernel->name() << ": " << output.error().message;
  }
}

/// The machine code of what the prelude computes of floats, by entry point. `fmad` says
/// whether the compiler may make one operation of a product and a sum.
std::map<std::string, std::string> code_of_arithmetic(const compile::Nvrtc& nvrtc,
                                                      bool fmad) {
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
  auto job =
      test::job_for(test::real_nvrtc(), text,
                    {.architecture = {{9, 0}}, .kind = device::ImageKind::kCubin});
  job.options.insert(job.options.end(),
                     {"--std=c++17", fmad ? "--fmad=true" : "--fmad=false"});
  const auto output = compile::compile_here(
      nvrtc, job, std::chrono::steady_clock::now() + std::chrono::minutes(1), nullptr);
  EXPECT_TRUE(output) << output.error().message;
  std::map<std::string, std::string> code;
  if (!output)
    return code;
  const auto elf = ElfFile::parse(output->image);
  EXPECT_TRUE(elf) << elf.error().message;
  for (const ElfSection& section : elf->sections()) {
    if (section.name.starts_with(".text."))
      code.emplace(section.name, as_text(section.bytes));
  }
  return code;
}

// What a function computes from a product and from its rounding error is wrong where
// the compiler adds the product unrounded. The CPU's compiler does so less often than
// NVRTC, so results on the CPU do not show it.
TEST(Prelude, ComputesOfFloatsWhatTheCompilerDoesNotContract) {
  const auto nvrtc = compile::open_nvrtc(test::real_nvrtc());
  if (!nvrtc) {
    GTEST_SKIP() << "no NVRTC on this machine";
  }
  const auto contracted = code_of_arithmetic(**nvrtc, true);
  const auto plain = code_of_arithmetic(**nvrtc, false);
  EXPECT_EQ(contracted.size(), 6U);
  for (const auto& [name, code] : plain) {
    EXPECT_EQ(contracted.count(name), 1U) << name;
    EXPECT_TRUE(contracted.at(name) == code) << name << " differs with --fmad=false";
  }
}

/// What every wrapper of tensor cores and copies makes of its arguments, for T.
Result<compile::CompileOutput> compile_wrappers(const compile::Nvrtc& nvrtc,
                                                const std::string& element,
                                                device::ComputeCapability capability) {
  const std::string text =
      std::string(templates::embedded().prelude) + "using T = kiln_" + element + R"(;
KILN_KERNEL(32, 1)
product(float* out, const T* in) {
  KILN_SHARED(kiln_words<16>, tile, 64);
  kiln_copy_async(tile + kiln_thread(), in + 8 * kiln_thread(), kiln_thread() < 31);
  kiln_copy_commit();
  kiln_copy_async(tile + 32 + kiln_thread(), in, true);
  kiln_copy_commit();
  kiln_copy_wait<1>();
  kiln_sync_threads();
  kiln_u32 a[4];
  kiln_u32 b[4];
  kiln_matrix_load(a, tile + kiln_thread());
  kiln_copy_wait<0>();
  kiln_sync_threads();
  kiln_matrix_load_transposed(b, tile + 32 + kiln_thread());
  float d[4] = {};
  kiln_multiply_k16<T>(d, a, b[0], b[1]);
  kiln_multiply_k8<T>(d, a[0], a[1], b[2]);
  for (int i = 0; i < 4; ++i) {
    out[4 * kiln_thread() + i] = d[i];
  }
}
)";
  compile::CompileJob job =
      test::job_for(test::real_nvrtc(), text,
                    {.architecture = {capability}, .kind = device::ImageKind::kCubin});
  job.options.emplace_back("--std=c++17");
  job.ptx = compile::PtxPolicy::kKeep;
  return compile::compile_here(
      nvrtc, job, std::chrono::steady_clock::now() + std::chrono::minutes(1), nullptr);
}

TEST(TensorCores, BecomeTheirInstructionsFromEightOhOn) {
  const auto nvrtc = compile::open_nvrtc(test::real_nvrtc());
  if (!nvrtc) {
    GTEST_SKIP() << "no NVRTC on this machine";
  }
  for (const std::string element : {"f16", "bf16"}) {
    for (const device::ComputeCapability capability :
         {device::ComputeCapability{8, 0}, {9, 0}, {10, 0}, {12, 0}}) {
      SCOPED_TRACE(element + " " + to_string(capability));
      const auto output = compile_wrappers(**nvrtc, element, capability);
      ASSERT_TRUE(output) << output.error().message;
      const std::string type = element + "." + element + ".f32";
      for (const std::string& instruction :
           {std::string("ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
            std::string("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"),
            "mma.sync.aligned.m16n8k16.row.col.f32." + type,
            "mma.sync.aligned.m16n8k8.row.col.f32." + type,
            std::string("cp.async.cg.shared.global"),
            std::string("cp.async.commit_group"), std::string("cp.async.wait_group 1"),
            std::string("cp.async.wait_group 0")}) {
        EXPECT_THAT(output->ptx, HasSubstr(instruction));
      }
    }
  }
}

TEST(TensorCores, DoOnSevenFiveWhatTheyCan) {
  const auto nvrtc = compile::open_nvrtc(test::real_nvrtc());
  if (!nvrtc) {
    GTEST_SKIP() << "no NVRTC on this machine";
  }
  const auto output = compile_wrappers(**nvrtc, "f16", {7, 5});
  ASSERT_TRUE(output) << output.error().message;
  std::size_t products = 0;
  const std::string product = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32";
  for (std::size_t at = output->ptx.find(product); at != std::string::npos;
       at = output->ptx.find(product, at + 1)) {
    ++products;
  }
  EXPECT_EQ(products, 3U) << "two for k16";
  EXPECT_THAT(output->ptx, HasSubstr("ldmatrix.sync.aligned.m8n8.x4.shared.b16"));
  EXPECT_THAT(output->ptx, Not(HasSubstr("m16n8k16")));
  EXPECT_THAT(output->ptx, Not(HasSubstr("cp.async")));
  const auto refused = compile_wrappers(**nvrtc, "bf16", {7, 5});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("of kiln_bf16: from 8.0 on"));
}

}  // namespace
}  // namespace kiln
