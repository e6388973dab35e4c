// The arithmetic of Kiln's own templates is what their texts say: no option and no
// compiler replaces it by something faster. Looked at in the PTX of a real build.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "build/request_keys.h"
#include "compile/worker/nvrtc.h"
#include "compile/worker/nvrtc_compile.h"
#include "render/catalog.h"
#include "tests/support/compile_jobs.h"
#include "tests/support/value_of.h"

namespace kiln {
namespace {

/// The job that the service would give a worker for `request`.
compile::CompileJob job_of(const request::TemplateRequest& request,
                           const compile::NvrtcPaths& nvrtc) {
  device::ToolchainChoice choice;
  choice.toolchain.nvrtc = nvrtc.nvrtc;
  choice.toolchain.builtins = nvrtc.builtins;
  const KeyedRequest keyed{
      .request = RequestKeys::prepare(request).value(),
      .target = {.architecture = {{9, 0}}, .kind = device::ImageKind::kCubin},
      .toolchain = std::make_shared<const device::ToolchainChoice>(choice),
      .headers = std::make_shared<const key::HeaderSnapshot>(),
      .key = {}};
  return RequestKeys::job(keyed).value();
}

/// The instructions that flush small numbers to zero or approximate, but for the three
/// that the prelude asks for by name.
std::vector<std::string> fast_instructions(const std::string& ptx) {
  std::vector<std::string> found;
  std::istringstream lines(ptx);
  for (std::string line; std::getline(lines, line);) {
    const bool fast = line.find(".ftz") != std::string::npos ||
                      line.find(".approx") != std::string::npos ||
                      line.find(".full.") != std::string::npos;
    const bool named = line.find("ex2.approx.ftz.f32") != std::string::npos ||
                       line.find("rcp.approx.ftz.f32") != std::string::npos ||
                       line.find("rsqrt.approx.ftz.f32") != std::string::npos;
    if (fast && !named) {
      found.push_back(line);
    }
  }
  return found;
}

// Guards against fast math for everything, which existing kernels are built with: it
// flushes small numbers to zero and approximates every division and exponential.
TEST(TemplateArithmetic, IsNotMadeFastBehindATextsBack) {
  const compile::NvrtcPaths paths = test::real_nvrtc();
  const auto nvrtc = compile::open_nvrtc(paths);
  if (!nvrtc) {
    GTEST_SKIP() << "no NVRTC on this machine";
  }
  const auto catalog =
      test::value_of(render::TemplateCatalog::open(templates::embedded()));
  const auto kernels = test::value_of(catalog.kernels());
  for (const auto& kernel : kernels) {
    for (const auto& params : kernel->quick_set()) {
      const compile::CompileJob job = job_of({kernel, params}, paths);
      for (const std::string& option : job.options) {
        EXPECT_TRUE(option.starts_with("--gpu-architecture=") ||
                    option == "--std=c++17")
            << option;
      }
      const auto output = test::value_of(compile::compile_here(
          **nvrtc, job, std::chrono::steady_clock::now() + std::chrono::minutes(5),
          nullptr));
      ASSERT_NE(output.ptx.find(".entry"), std::string::npos);
      for (const std::string& line : fast_instructions(output.ptx)) {
        ADD_FAILURE() << job.label << ":" << line;
      }
    }
  }
}

}  // namespace
}  // namespace kiln
