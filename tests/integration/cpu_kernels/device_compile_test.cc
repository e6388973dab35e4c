// What the prelude gives kernels on a CPU, it gives them on devices: the right twins of
// the broken kernels, which use all of it, through real NVRTC.

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <vector>

#include "compile/nvrtc.h"
#include "compile/nvrtc_compile.h"
#include "render/catalog.h"
#include "tests/support/compile_jobs.h"

namespace kiln {
namespace {

TEST(Prelude, CompilesForDevicesToo) {
  const auto nvrtc = compile::open_nvrtc(test::real_nvrtc());
  if (!nvrtc) {
    GTEST_SKIP() << "no NVRTC on this machine";
  }
  const std::vector<std::filesystem::path> folders{KILN_TEST_DEFECTS};
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

}  // namespace
}  // namespace kiln
