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

Result<std::string> compile_to_ptx(const std::string& source,
                                   ComputeCapability capability) {
  if (!nvrtc())
    return tl::unexpected(nvrtc().error());
  auto job = job_for(real_nvrtc(), source,
                     {.architecture = {capability}, .kind = device::ImageKind::kPtx});
  job.options.emplace_back("--std=c++17");
  const auto output = KILN_TRY(compile::compile_here(
      **nvrtc(), job, std::chrono::steady_clock::now() + std::chrono::minutes(1),
      nullptr));
  return std::string(as_text(output.image));
}

}  // namespace kiln::test
