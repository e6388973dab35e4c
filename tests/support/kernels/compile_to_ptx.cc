#include "tests/support/kernels/compile_to_ptx.h"

#include <chrono>

#include "compile/worker/nvrtc.h"
#include "compile/worker/nvrtc_compile.h"
#include "tests/support/compile_jobs.h"
#include "util/bytes.h"
#include "util/try.h"

namespace kiln::test {
namespace {

const auto& nvrtc() {
  static const auto* const opened = new auto(compile::open_nvrtc(real_nvrtc()));
  return *opened;
}

}  // namespace

bool can_compile_ptx() {
  return nvrtc().has_value();
}

Result<std::vector<std::byte>> compile_to_image(
    const std::string& source, ComputeCapability capability, device::ImageKind kind,
    const std::vector<std::string>& options) {
  if (!nvrtc())
    return tl::unexpected(nvrtc().error());
  auto job =
      job_for(real_nvrtc(), source, {.architecture = {capability}, .kind = kind});
  job.options.emplace_back("--std=c++17");
  job.options.insert(job.options.end(), options.begin(), options.end());
  return KILN_TRY(compile::compile_here(
                      **nvrtc(), job,
                      std::chrono::steady_clock::now() + std::chrono::minutes(1),
                      nullptr))
      .image;
}

Result<std::string> compile_to_ptx(const std::string& source,
                                   ComputeCapability capability) {
  const auto image =
      KILN_TRY(compile_to_image(source, capability, device::ImageKind::kPtx));
  return std::string(as_text(image));
}

}  // namespace kiln::test
