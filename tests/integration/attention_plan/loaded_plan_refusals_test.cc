// What is refused, and that cuDNN and the driver see nothing of it.

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "tests/integration/attention_plan/loaded_plans.h"
#include "tests/support/is_error.h"

namespace kiln::attention {
namespace {

/// Plans that cuDNN must not see.
class DamagedPlans : public LoadedPlans {
 protected:
  [[nodiscard]] Error refused(Plan plan, std::size_t device = 0) const {
    const auto loaded = LoadedPlan::load(handles_[device], std::move(plan));
    EXPECT_FALSE(loaded);
    EXPECT_EQ(count(KILN_SIMULATED_CUDNN_PLANS_LOADED), 0U) << "cuDNN saw it";
    EXPECT_EQ(count(KILN_SIMULATED_CUDNN_HANDLES_MADE), 0U);
    return loaded ? Error{} : loaded.error();
  }
};

TEST_F(DamagedPlans, AreRefusedBeforeCudnnSeesThem) {
  const Plan& whole = plan_for(simulated_, 0);
  const PlanKernel& kernel = whole.kernels.at(0);
  const auto with = [&](const std::function<void(std::string_view, Plan&)>& change) {
    Plan plan = whole;
    change(std::string_view(whole.json).substr(kernel.cubin_offset), plan);
    return refused(std::move(plan));
  };
  for (const Error& error :
       {with([&](std::string_view, Plan& plan) {
          plan.json[kernel.cubin_offset] ^= 1;  // flipped
        }),
        with([&](std::string_view, Plan& plan) {
          plan.kernels[0].cubin_chars = kernel.cubin_chars / 8 * 4;  // half of it
        }),
        with([&](std::string_view, Plan& plan) {
          plan.json.resize(plan.json.size() / 2);
          plan.kernels[0].cubin_chars = plan.json.size() - kernel.cubin_offset;
        })}) {
    EXPECT_EQ(error.code, ErrorCode::kCorrupt) << error.message;
    EXPECT_THAT(error.message, AllOf(HasSubstr("plan (" + whole.engine +
                                               ") on device 0 (Simulated 9.0): "),
                                     HasSubstr("kernel")));
  }
}

TEST_F(DamagedPlans, WithAnotherArchitecturesCodeAreRefusedBeforeCudnnSeesThem) {
  Plan plan = plan_for(simulated_, 0);
  const Plan& other = plan_for(simulated_, 1);
  const PlanKernel& mine = plan.kernels.at(0);
  const PlanKernel& theirs = other.kernels.at(0);
  plan.json.replace(mine.cubin_offset, mine.cubin_chars,
                    other.json.substr(theirs.cubin_offset, theirs.cubin_chars));
  EXPECT_TRUE(read_json(plan));
  const Error error = refused(std::move(plan));
  EXPECT_EQ(error.code, ErrorCode::kCorrupt);
  EXPECT_THAT(error.message, HasSubstr("is for 8.0, the plan for 9.0"));
}

TEST_F(DamagedPlans, OfAnotherCudnnAreAMissWithTheReason) {
  Plan plan = plan_for(simulated_, 0);
  plan.cudnn.patch += 1;
  const Error error = refused(plan);
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("it was built by cuDNN " + to_string(plan.cudnn)),
                    HasSubstr(cudnn_->path().native())));
}

TEST_F(DamagedPlans, OfTheCudnnBeforeAnUpgradeAreAMiss) {
  const Plan& plan = plan_for(simulated_, 0);
  const test::SimulatedCudnn upgraded(simulated_);
  upgraded.set_version({.major = 9, .minor = 20, .patch = 0});
  const auto library = CudnnLibrary::open(upgraded.path());
  ASSERT_TRUE(library) << library.error().message;
  handles_[0] = CudnnHandles::of(*library, test::context_of(simulated_));
  const Error error = refused(plan);
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message,
              HasSubstr(upgraded.path().native() + " is version 9.20.0"));
  EXPECT_EQ(upgraded.count(KILN_SIMULATED_CUDNN_PLANS_LOADED), 0U);
}

TEST_F(DamagedPlans, OfAnotherDeviceAreAMissWithTheReason) {
  const Error error = refused(plan_for(simulated_, 0), 1);
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(
      error.message,
      AllOf(HasSubstr("on device 1 (Simulated 8.0): it was built for another device: "
                      "multiProcessorCount is 132 in the plan, 108 here"),
            HasSubstr("deviceVer is 900 in the plan, 800 here")));
}

TEST_F(DamagedPlans, OfTheSameArchitectureWithOtherMultiprocessorsAreAMiss) {
  const auto driver = handles_[0]->context().driver();
  auto properties = nlohmann::json::parse(device::describe_device(driver, 0).value());
  properties["multiProcessorCount"] = 114;
  const auto plan = test::sample_plan(base(), properties.dump(), {9, 0});
  ASSERT_TRUE(plan) << plan.error().message;
  const Error error = refused(*plan);
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(
      error.message,
      HasSubstr("another device: multiProcessorCount is 114 in the plan, 132 here"));
  EXPECT_THAT(error.message, testing::Not(HasSubstr("deviceVer")));
}

TEST_F(DamagedPlans, OfAnotherDriverAreAMissWithTheReason) {
  Plan plan = plan_for(simulated_, 0);
  for (BoundProperty& property : plan.bound) {
    if (property.name == "driverVer")
      property.values = {12090};
  }
  const Error error = refused(std::move(plan));
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("driverVer is 12090 in the plan, 13000 here"));
}

TEST_F(LoadedPlans, ThatCudnnItselfRefusesAreAMissInItsWords) {
  Plan plan = plan_for(simulated_, 0);
  const std::string here = "\"multiProcessorCount\":132";
  const std::size_t at = plan.json.find(here);
  ASSERT_NE(at, std::string::npos);
  plan.json.replace(at, here.size(), "\"multiProcessorCount\":114");
  EXPECT_THAT(
      LoadedPlan::load(handles_[0], std::move(plan)),
      test::IsError(ErrorCode::kUnavailable,
                    AllOf(HasSubstr("cudnnBackendFinalize, plan ("),
                          HasSubstr("on device 0 (Simulated 9.0): "),
                          HasSubstr("CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH"))));
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_PLANS), 0U) << "destroyed";
}

TEST_F(LoadedPlans, RefuseStreamsOfOtherContextsBeforeAnythingIsLaunched) {
  const auto plan = load(0);
  ASSERT_TRUE(plan);
  const auto with = arguments(plan->plan(), context(0));
  EXPECT_THAT(
      refusal(run(*plan, with, test::stream_of(simulated_, context(1)))),
      HasSubstr(
          "the stream is of device 1 (Simulated 8.0); pass a stream of device 0"));
  const CUcontext second = second_context();
  EXPECT_THAT(refusal(run(*plan, with, test::stream_of(simulated_, second))),
              HasSubstr("the stream is of another context of device 0"));
  test::make_current(simulated_, context(1));
  EXPECT_THAT(refusal(run(*plan, with)),
              HasSubstr("the default stream is of the current context, of device 1"));
}

TEST_F(LoadedPlans, RefuseMemoryOfOtherContextsBeforeAnythingIsLaunched) {
  const auto plan = load(0);
  ASSERT_TRUE(plan);
  const auto good = arguments(plan->plan(), context(0));
  const CUcontext second = second_context();
  alignas(256) std::array<char, 256> host{};
  const struct {
    void* pointer;
    const char* why;
  } cases[]{{memory(context(1), 64), "it is memory of device 1 (Simulated 8.0)"},
            {memory(second, 64), "it is memory of another context of device 0"},
            {host.data(), "it is no memory that the driver knows"}};
  for (const auto& each : cases) {
    auto with = good;
    with.tensors[1].pointer = each.pointer;
    EXPECT_THAT(refusal(run(*plan, with)),
                AllOf(HasSubstr(fmt::format("tensor {} cannot be used: {}",
                                            to_string(with.tensors[1].role), each.why)),
                      HasSubstr("; pass memory of device 0 (Simulated 9.0)")));
  }
}

TEST_F(LoadedPlans, RefuseTensorsThatAreMissingUnknownOrGivenTwice) {
  const auto plan = load(0);
  ASSERT_TRUE(plan);
  const auto good = arguments(plan->plan(), context(0));
  auto with = good;
  with.tensors.pop_back();
  EXPECT_THAT(refusal(run(*plan, with)), HasSubstr(" is missing; it takes q, k, v, o"));
  with = good;
  with.tensors.push_back(good.tensors[0]);
  EXPECT_THAT(refusal(run(*plan, with)), HasSubstr("tensor q is given twice"));
  with = good;
  with.tensors.push_back({TensorRole::kGradQ, good.tensors[0].pointer});
  EXPECT_THAT(refusal(run(*plan, with)),
              HasSubstr("it takes no tensor grad_q; it takes q, k, v, o"));
  for (const int role : {0, 21, 255}) {
    with = good;
    with.tensors[0].role = static_cast<TensorRole>(role);
    EXPECT_THAT(refusal(run(*plan, with)),
                HasSubstr(fmt::format("there is no tensor of role {}", role)));
  }
  with = good;
  with.tensors[2].pointer = nullptr;
  EXPECT_THAT(refusal(run(*plan, with)), HasSubstr("tensor v is null"));
  with = good;
  ASSERT_EQ(with.tensors.back().role, TensorRole::kScale);
  with.tensors.back().pointer = good.tensors[0].pointer;
  EXPECT_THAT(refusal(run(*plan, with)),
              HasSubstr("scale is read by the host, and is device memory"));
  with = good;
  with.tensors[0].pointer = static_cast<char*>(good.tensors[0].pointer) + 8;
  EXPECT_THAT(refusal(run(*plan, with)), HasSubstr("tensor q is not aligned to 16"));
}

TEST_F(LoadedPlans, ThatCudnnFailsToRunSayWhatCudnnSaid) {
  const auto plan = load(0);
  ASSERT_TRUE(plan);
  const auto with = arguments(plan->plan(), context(0));
  for (const char* const call :
       {"cudnnSetStream", "cudnnBackendExecute", "cudnnBackendCreateDescriptor"}) {
    cudnn_->inject(call, 5000);
    EXPECT_THAT(
        run(*plan, with),
        test::IsError(
            ErrorCode::kDevice,
            AllOf(HasSubstr(std::string(call) + ", plan ("),
                  HasSubstr("on device 0 (Simulated 9.0): "
                            "CUDNN_STATUS_EXECUTION_FAILED (5000): as a test has "
                            "asked"))));
  }
  EXPECT_TRUE(run(*plan, with));
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_PACKS), 0U);
}

TEST_F(LoadedPlans, AreNotLoadedWhereCudnnHasNoHandle) {
  cudnn_->inject("cudnnCreate", 1001);
  EXPECT_THAT(LoadedPlan::load(handles_[0], plan_for(simulated_, 0)),
              test::IsError(ErrorCode::kDevice,
                            HasSubstr("cudnnCreate, device 0 (Simulated 9.0): "
                                      "CUDNN_STATUS_NOT_INITIALIZED (1001)")));
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_PLANS_LOADED), 0U)
      << "cuDNN 9.19.0 crashes on a plan without a handle";
  EXPECT_TRUE(load(0)) << "the next one has one";
}

TEST_F(LoadedPlans, RefuseWorkspacesThatAreTooSmallMisalignedOrElsewhere) {
  const auto plan = load(0, plan_with_a_workspace(simulated_, 0));
  ASSERT_TRUE(plan);
  const std::size_t needed = plan->plan().workspace_bytes();
  ASSERT_GT(needed, 0U);
  const auto good = arguments(plan->plan(), context(0));
  const auto with = [&](void* pointer, std::size_t bytes) {
    auto changed = good;
    changed.workspace = {pointer, bytes};
    return refusal(run(*plan, changed));
  };
  auto* const there = static_cast<char*>(good.workspace.pointer);
  EXPECT_THAT(
      with(there, needed - 1),
      HasSubstr(fmt::format("it needs a workspace of {} bytes, and {} were given",
                            needed, needed - 1)));
  EXPECT_THAT(with(nullptr, needed), HasSubstr("and none was given"));
  EXPECT_THAT(with(there + 128, needed),
              HasSubstr("the workspace is not aligned to 256 bytes"));
  EXPECT_THAT(with(memory(context(1), needed), needed),
              HasSubstr("the workspace cannot be used: it is memory of device 1"));
}

}  // namespace
}  // namespace kiln::attention
