// A simulated cuDNN of a test's own: a copy of libkiln-simulated-cudnn.so that nobody
// else has opened, its remote control, and plans of the real cuDNN to load there. Link
// kiln_simulated_cudnn_control.

#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <stop_token>
#include <string>
#include <tuple>
#include <vector>

#include "attention/plan.h"
#include "attention/problem_codec.h"
#include "compile/pool/worker_pool.h"
#include "cudnn/library.h"
#include "tests/support/compile_jobs.h"
#include "tests/support/own_library.h"
#include "tests/support/paths.h"
#include "tests/support/simulated_cudnn/simulated_cudnn.h"
#include "tests/support/simulated_driver.h"
#include "tests/support/temp_dir.h"
#include "util/try.h"

namespace kiln::test {

/// The cuDNN of this machine: KILN_CUDNN, else the first that the search finds; empty
/// where there is none, and then a test that needs one skips itself.
inline std::filesystem::path real_cudnn() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment
  const char* const given = std::getenv("KILN_CUDNN");
  const auto found =
      attention::find_cudnn(given == nullptr ? "" : given, LibraryPlaces::of_process());
  return found && !found->empty() ? found->front().path : "";
}

class SimulatedCudnn : public OwnLibrary {
 public:
  explicit SimulatedCudnn(const SimulatedDriver& driver)
      : OwnLibrary(paths::kSimulatedCudnn) {
    // Open for good: cuDNN opens it for a plan and closes it again, and each time it
    // leaves memory behind.
    if (const auto nvrtc = real_nvrtc().nvrtc; !nvrtc.empty())
      std::ignore = ::dlopen(nvrtc.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_EQ(control<decltype(kiln_simulated_cudnn_open)>("kiln_simulated_cudnn_open")(
                  driver.path().c_str(), real_cudnn().c_str()),
              0);
  }

  void set_version(attention::CudnnVersion version) const {
    control<decltype(kiln_simulated_cudnn_set_version)>(
        "kiln_simulated_cudnn_set_version")(
        static_cast<std::size_t>(attention::encoded(version)));
  }

  void inject(const char* function, int status) const {
    control<decltype(kiln_simulated_cudnn_inject)>("kiln_simulated_cudnn_inject")(
        function, status);
  }

  [[nodiscard]] std::size_t count(kiln_simulated_cudnn_counts what) const {
    return control<decltype(kiln_simulated_cudnn_count)>("kiln_simulated_cudnn_count")(
        what);
  }

  /// Every execution so far, in order.
  [[nodiscard]] std::vector<kiln_simulated_cudnn_run> runs() const {
    auto* const ask =
        control<decltype(kiln_simulated_cudnn_runs)>("kiln_simulated_cudnn_runs");
    std::vector<kiln_simulated_cudnn_run> all(ask(nullptr, 0));
    ask(all.data(), all.size());
    return all;
  }
};

/// A plan of the real cuDNN for `problem` and the device of `device_json`, which need
/// not be there. Errors: the worker's; kUnavailable, where cuDNN refuses the problem.
inline Result<attention::Plan> sample_plan(const attention::Problem& problem,
                                           const std::string& device_json,
                                           device::ComputeCapability capability) {
  compile::PoolOptions options;
  options.worker = {.name = "kiln-plan-worker", .path = paths::kPlanWorker};
  compile::WorkerPool pool(std::move(options));
  compile::PlanJob job;
  job.label = "sample";
  job.problem = std::string(as_text(to_fields(problem).encode()));
  job.device = device_json;
  job.capability = capability;
  job.cudnn = real_cudnn();
  job.nvrtc = real_nvrtc();
  const auto output = KILN_TRY(pool.build_plan(job, std::stop_token()));
  if (output.plan.empty())
    return fail(ErrorCode::kUnavailable,
                output.attempts.empty() ? "no plan" : output.attempts.back().message);
  return attention::decode_plan(output.plan);
}

}  // namespace kiln::test
