// The fixture of the tests of loading and running plans: two simulated devices, a
// simulated cuDNN, and a plan of the real one for each device.

#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cudnn/loaded_plan.h"
#include "device/profile.h"
#include "tests/support/simulated_cudnn.h"
#include "tests/support/test.h"
#include "tests/unit/attention/problems.h"
#include "tests/unit/device/loading.h"

namespace kiln::attention {

/// A plan for that device of `simulated`, built once in a process.
inline const Plan& plan_for(const test::SimulatedDriver& simulated, int device,
                            const Problem& problem = base()) {
  static auto& known = *new std::map<std::string, Plan>;
  const auto driver = device::Driver::open(simulated.path(), {}).value().value();
  const std::string properties = device::describe_device(driver, device).value();
  const auto capability =
      driver.devices().value().at(static_cast<std::size_t>(device)).capability;
  const std::string key = properties + to_string(problem);
  if (!known.contains(key)) {
    auto made = test::sample_plan(problem, properties, capability);
    EXPECT_TRUE(made) << made.error().message;
    known[key] = made ? *std::move(made) : Plan{};
  }
  return known[key];
}

/// As plan_for(), with values in its workspace, which alibi has, and zeros.
inline Plan plan_with_a_workspace(const test::SimulatedDriver& simulated, int device) {
  Problem problem = with_mask(base(Pass::kBackward), Mask::kCausal);
  problem.bias_kind = Bias::kAlibi;
  Plan plan = plan_for(simulated, device, problem);
  EXPECT_TRUE(std::ranges::any_of(
      plan.workspace, [](const auto& each) { return !each.values.empty(); }));
  constexpr std::uint64_t kBytes = 512;
  plan.workspace.push_back({.uid = 9001,
                            .offset = plan.graph_workspace_bytes,
                            .zero_bytes = kBytes,
                            .values = {}});
  plan.graph_workspace_bytes += kBytes;
  return plan;
}

/// What a run of `plan` must have made of a workspace full of ones.
inline void expect_filled(const Plan& plan, const unsigned char* workspace) {
  for (const WorkspaceTensor& tensor : plan.workspace) {
    const unsigned char* const bytes = workspace + tensor.offset;
    EXPECT_TRUE(std::all_of(bytes, bytes + tensor.zero_bytes,
                            [](unsigned char each) { return each == 0; }));
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      float value = 0;
      std::memcpy(&value, bytes + i * sizeof(value), sizeof(value));
      EXPECT_EQ(value, tensor.values[i]);
    }
  }
}

/// Device 0 is a 9.0, device 1 an 8.0.
class LoadedPlans : public testing::Test {
 protected:
  explicit LoadedPlans(const std::string& devices = "9.0,8.0") : simulated_(devices) {}

  void SetUp() override {
    if (test::real_cudnn().empty())
      GTEST_SKIP() << "no libcudnn.so.9";
    cudnn_ = std::make_unique<test::SimulatedCudnn>(simulated_);
    const auto library = CudnnLibrary::open(cudnn_->path());
    ASSERT_TRUE(library) << library.error().message;
    for (std::size_t device = 0; device < 2; ++device)
      handles_[device] =
          CudnnHandles::of(*library, test::context_of(simulated_, device));
  }

  [[nodiscard]] std::shared_ptr<const LoadedPlan> load(std::size_t device) const {
    return load(device, plan_for(simulated_, static_cast<int>(device)));
  }

  [[nodiscard]] std::shared_ptr<const LoadedPlan> load(std::size_t device,
                                                       Plan plan) const {
    auto loaded = LoadedPlan::load(handles_[device], std::move(plan));
    EXPECT_TRUE(loaded) << loaded.error().message;
    return loaded ? *loaded : nullptr;
  }

  [[nodiscard]] CUcontext context(std::size_t device) const {
    return handles_[device]->context().handle();
  }

  /// One that is not the primary context of device 0, but of that device.
  [[nodiscard]] CUcontext second_context() const {
    CUcontext made = nullptr;
    EXPECT_EQ(simulated_.find<CUresult(CUcontext*, unsigned, CUdevice)>(
                  "cuCtxCreate_v2")(&made, 0, 0),
              CUDA_SUCCESS);
    test::make_current(simulated_, nullptr);
    return made;
  }

  /// Memory of a context; it goes with the simulated driver.
  [[nodiscard]] void* memory(CUcontext where, std::size_t bytes) const {
    const CUcontext before = test::current_context(simulated_);
    test::make_current(simulated_, where);
    CUdeviceptr pointer = 0;
    EXPECT_EQ(simulated_.find<decltype(::cuMemAlloc)>("cuMemAlloc_v2")(&pointer, bytes),
              CUDA_SUCCESS);
    test::make_current(simulated_, before);
    return reinterpret_cast<void*>(pointer);  // NOLINT(performance-no-int-to-ptr)
  }

  /// What a run of `plan` takes, in memory of `where`. Few bytes: nobody computes.
  struct Arguments {
    std::vector<TensorPointer> tensors;
    WorkspaceMemory workspace;
  };
  [[nodiscard]] Arguments arguments(const Plan& plan, CUcontext where) const {
    Arguments made;
    for (const TensorRole role : plan.tensors)
      made.tensors.push_back(
          {role, role == TensorRole::kScale ? &scale_ : memory(where, 64)});
    const std::size_t bytes = plan.workspace_bytes();
    if (bytes != 0)
      made.workspace = {memory(where, bytes), bytes};
    return made;
  }

  static Result<void> run(const LoadedPlan& plan, const Arguments& with,
                          CUstream stream = nullptr) {
    return plan.run(stream, with.tensors, with.workspace);
  }

  [[nodiscard]] std::size_t count(kiln_simulated_cudnn_counts what) const {
    return cudnn_->count(what);
  }

  /// The message of a run that was refused before anything saw it.
  [[nodiscard]] std::string refusal(const Result<void>& result) const {
    EXPECT_FALSE(result);
    EXPECT_EQ(count(KILN_SIMULATED_CUDNN_EXECUTIONS), 0U) << "cuDNN saw it";
    EXPECT_TRUE(simulated_.launches().empty()) << "the driver saw it";
    EXPECT_EQ(simulated_.calls("cuMemsetD8Async"), 0U);
    if (result)
      return "";
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    return result.error().message;
  }

  const test::SimulatedDriver simulated_;
  std::unique_ptr<test::SimulatedCudnn> cudnn_;
  std::array<std::shared_ptr<CudnnHandles>, 2> handles_;
  mutable float scale_ = 0.125F;
};

}  // namespace kiln::attention
