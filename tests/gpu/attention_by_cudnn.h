// Calls of attention that cuDNN must run, on real devices. Where the rules or cuDNN
// itself refuse a problem on every device, its tests are skipped with the reasons. On a
// simulated device Kiln's kernels stand in for it.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "attention/evaluate.h"
#include "cudnn/library.h"
#include "tests/gpu/attention_cases.h"
#include "tests/gpu/attention_on_device.h"
#include "tests/integration/attention_kernel/check.h"

namespace kiln::gpu_test {

using ops::AttentionBackend;

/// Which passes of a problem a test has cuDNN run.
enum class Passes : std::uint8_t { kForward, kBackward, kBoth, kBothInGraphs };

class AttentionByCudnnTest : public AttentionCasesTest {
 protected:
  /// Whose every call runs there, or is an error.
  static Service& service_of(AttentionBackend backend) {
    static std::map<AttentionBackend, Service> all;
    if (const auto found = all.find(backend); found != all.end())
      return found->second;
    Options options = GpuTest::options();
    options.attention = backend == AttentionBackend::kCudnn ? AttentionSetting::kCudnn
                                                            : AttentionSetting::kKiln;
    auto service = Service::open(options);
    if (!service)
      throw std::runtime_error(service.error().message);
    return all.emplace(backend, *std::move(service)).first->second;
  }

  /// Runs `body` with the problem's element type on each of `some` where cuDNN runs
  /// `passes`. Skipped where it does so nowhere.
  template <typename Body>
  static void where_cudnn_runs(Passes passes, const std::vector<Device>& some,
                               const Body& body) {
    std::set<std::string> reasons;
    bool has_run = false;
    for (const Device& device : some) {
      SCOPED_TRACE(testing::Message() << "on device " << device.ordinal);
      const OperationsOnDevice scope(service(), device);
      const auto reason = why_not(device, passes);
      if (reason)
        reasons.insert(*reason);
      if (reason && !driver().is_simulated)
        continue;
      has_run = has_run || !reason;
      with_type(GetParam(), body);
      if (HasFatalFailure())
        return;
    }
    if (!has_run)
      GTEST_SKIP() << testing::PrintToString(reasons);
  }
  template <typename Body>
  static void where_cudnn_runs(Passes passes, const Body& body) {
    where_cudnn_runs(passes, device_of_each_kind(), body);
  }

  /// With the passes by those backends. Simulated, both are Kiln's.
  template <typename T>
  static std::unique_ptr<attention_test::Call<T>> run(AttentionBackend forward,
                                                      AttentionBackend backward) {
    if (driver().is_simulated)
      forward = backward = AttentionBackend::kKiln;
    const AttentionByServices services(service_of(forward), service_of(backward));
    // As cuDNN wants them, tensors begin at multiples of 16 bytes.
    attention_test::Setting setting = GetParam().setting;
    setting.exact = kiln_cpu::Side::kBegin;
    setting.offset = 0;
    auto call =
        std::make_unique<attention_test::Call<T>>(problem_of(GetParam()), setting);
    call->run_both();
    return call;
  }

  template <typename T>
  static void check(const std::unique_ptr<attention_test::Call<T>>& call) {
    if (!HasFatalFailure())
      attention_test::check(*call, true);
  }

 private:
  static const Result<attention::CudnnVersion>& installed_version() {
    static const auto* const once = [] {
      // NOLINTNEXTLINE(concurrency-mt-unsafe): no test sets it
      const char* const given = std::getenv("KILN_CUDNN");
      const auto found = attention::find_cudnn(given == nullptr ? "" : given,
                                               LibraryPlaces::of_process());
      if (!found || found->empty())
        return new Result<attention::CudnnVersion>(
            fail(ErrorCode::kUnavailable,
                 found ? std::string(attention::kNoCudnn) : found.error().message));
      return new Result<attention::CudnnVersion>(
          attention::CudnnLibrary::open(found->front().path)
              .map([](const auto& library) { return library.version(); }));
    }();
    return *once;
  }

  /// Why cuDNN does not run it there: an answer. What else goes wrong is a failure.
  static std::optional<std::string> why_not(const Device& device,
                                            const attention::Problem& problem) {
    if (driver().is_simulated)
      return "the simulated driver runs no plan of cuDNN's";
    const auto& version = installed_version();
    if (!version)
      return version.error().message;
    const auto verdict = attention::evaluate(problem, device.capability, *version);
    if (!verdict.supported) {
      const attention::Finding& first = verdict.refusals.front();
      return first.id + ": " + first.reason;
    }
    const auto choice =
        test::prepare(service_of(AttentionBackend::kCudnn), device, problem);
    if (choice)
      return std::nullopt;
    // Engines, the age of cuDNN, and a build of Kiln without plans.
    EXPECT_THAT(choice.error().message,
                testing::AnyOf(testing::HasSubstr("itself refuses it"),
                               testing::HasSubstr("builds no plan for a device"),
                               testing::HasSubstr("there is no kiln-plan-worker")));
    return choice.error().message;
  }

  /// Of the problems that Call::run_both() has.
  static std::optional<std::string> why_not(const Device& device, Passes passes) {
    attention::Problem problem = problem_of(GetParam());
    const bool has_bias_gradient = std::exchange(problem.bias_gradient, false);
    problem.capture = passes == Passes::kBothInGraphs;
    problem.stats = true;
    if (passes != Passes::kBackward) {
      if (const auto reason = why_not(device, problem))
        return "forward: " + *reason;
    }
    problem = test::backward_of(problem);
    problem.bias_gradient = has_bias_gradient;
    if (passes != Passes::kForward) {
      if (const auto reason = why_not(device, problem))
        return "backward: " + *reason;
    }
    return std::nullopt;
  }
};

}  // namespace kiln::gpu_test
