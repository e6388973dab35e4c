// Plans of two devices in one process.

#include "cudnn/loaded_plan.h"

#include <algorithm>
#include <cstdlib>

#include "cudnn/table.h"
#include "tests/integration/attention_plan/loaded_plans.h"
#include "tests/support/child_process.h"
#include "tests/support/in_threads.h"
#include "tests/support/value_of.h"

namespace kiln::attention {
namespace {

TEST_F(LoadedPlans, OfTwoDevicesRunSideBySideEachOnItsOwn) {
  const auto first = load(0);
  const auto second = load(1);
  ASSERT_TRUE(first && second);
  EXPECT_THAT(first->label(), HasSubstr("on device 0 (Simulated 9.0)"));
  const CUstream streams[] = {test::stream_of(simulated_, context(0)),
                              test::stream_of(simulated_, context(1))};
  for (int i = 0; i < 2; ++i) {
    for (const auto* const plan : {first.get(), second.get()}) {
      const auto device = static_cast<std::size_t>(plan->context().device().ordinal);
      const auto ran =
          run(*plan, arguments(plan->plan(), context(device)), streams[device]);
      EXPECT_TRUE(ran) << ran.error().message;
    }
  }
  EXPECT_EQ(test::current_context(simulated_), nullptr) << "the thread finds its own";
  const auto runs = cudnn_->runs();
  ASSERT_EQ(runs.size(), 4U);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(runs[i].device, static_cast<int>(i % 2));
    EXPECT_EQ(runs[i].context, context(i % 2));
    EXPECT_EQ(runs[i].stream, streams[i % 2]);
  }
  EXPECT_NE(runs[0].handle, runs[1].handle);
  EXPECT_EQ(runs[0].handle, runs[2].handle);
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_HANDLES_MADE), 2U);
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_PLANS_LOADED), 2U);
}

TEST_F(LoadedPlans, Case1_APlanOfOneDeviceNeverRunsWithAnothersHandle) {
  const auto plan = load(0);
  ASSERT_TRUE(plan);
  // What cuDNN itself makes of it, as the users of case 1 met it.
  const auto& table = handles_[1]->library().table();
  const CudnnHandle& foreign = **handles_[1]->get();
  const auto own = test::value_of(
      CudnnDescriptor::stored_plan(**handles_[0]->get(), plan->plan().json, "plan"));
  const std::array<std::int64_t, 1> id{1};
  const std::array<void*, 1> pointer{nullptr};
  const auto pack = test::value_of(CudnnDescriptor::variant_pack(
      handles_[1]->library(), id, pointer, nullptr, "pack"));
  const auto status = table.cudnnBackendExecute(foreign.raw(), own.raw(), pack.raw());
  EXPECT_EQ(status, cudnn::Status::kExecutionFailed);
  EXPECT_THAT(cudnn_error(table, status, "cudnnBackendExecute", "").value().message,
              HasSubstr("error (400): invalid resource handle"));
  const std::size_t before = count(KILN_SIMULATED_CUDNN_EXECUTIONS);

  // What Kiln makes of it: whatever is current, its own handle, or a clear error.
  const auto with = arguments(plan->plan(), context(0));
  const CUstream stream = test::stream_of(simulated_, context(0));
  for (const CUcontext current : {CUcontext{nullptr}, context(0), context(1)}) {
    test::make_current(simulated_, current);
    const auto ran = run(*plan, with, stream);
    EXPECT_TRUE(ran) << ran.error().message;
    EXPECT_EQ(test::current_context(simulated_), current);
    const auto refused = run(*plan, with, test::stream_of(simulated_, context(1)));
    ASSERT_FALSE(refused);
    EXPECT_THAT(
        refused.error().message,
        HasSubstr("on device 0 (Simulated 9.0): the stream is of device 1 (Simulated "
                  "8.0); pass a stream of device 0 (Simulated 9.0)"));
  }
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_EXECUTIONS), before + 3);
  for (const auto& each : cudnn_->runs()) EXPECT_NE(each.handle, foreign.raw());
}

/// Two cards of one kind, as in case 1: what is kept for one is good for the other.
class PlansOfTwins : public LoadedPlans {
 protected:
  PlansOfTwins() : LoadedPlans("8.6,8.6") {}
};

TEST_F(PlansOfTwins, Case1_AreOneInTheCacheAndLoadedForEachDevice) {
  const Plan& kept = plan_for(simulated_, 0);
  const std::array plans{load(0, kept), load(1, kept)};
  ASSERT_TRUE(plans[0] && plans[1]);
  const auto work = [&](std::size_t device) {
    const auto with = arguments(kept, context(device));
    const CUstream stream = test::stream_of(simulated_, context(device));
    for (int i = 0; i < 20; ++i) {
      const auto ran = run(*plans[device], with, stream);
      EXPECT_TRUE(ran) << ran.error().message;
    }
    EXPECT_FALSE(run(*plans[1 - device], with, stream)) << "the other's";
    EXPECT_FALSE(run(*plans[1 - device], with)) << "the other's memory";
  };
  test::in_threads(plans.size(), work);
  const auto runs = cudnn_->runs();
  EXPECT_EQ(runs.size(), 40U);
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_EXECUTIONS), 40U) << "none came that far";
  for (const auto& each : runs)
    EXPECT_EQ(each.context, context(static_cast<std::size_t>(each.device)));
  for (const auto& each : simulated_.launches()) {
    CUcontext owner = nullptr;
    test::make_current(simulated_, context(0));
    EXPECT_EQ(simulated_.find<decltype(::cuStreamGetCtx)>("cuStreamGetCtx")(each.stream,
                                                                            &owner),
              CUDA_SUCCESS);
    EXPECT_EQ(owner, context(static_cast<std::size_t>(each.device)));
  }
}

TEST_F(LoadedPlans, GiveCudnnTheTensorsTheScalarsAndTheWorkspace) {
  const auto plan = load(0);
  ASSERT_TRUE(plan);
  auto with = arguments(plan->plan(), context(0));
  std::ranges::reverse(with.tensors);  // in whatever order they come
  const auto ran = run(*plan, with);
  ASSERT_TRUE(ran) << ran.error().message;
  const auto runs = cudnn_->runs();
  ASSERT_EQ(runs.size(), 1U);
  std::map<std::int64_t, void*> given;
  for (std::size_t i = 0; i < runs[0].count; ++i)
    given[runs[0].ids[i]] = runs[0].pointers[i];
  for (const TensorPointer& tensor : with.tensors)
    EXPECT_EQ(given[static_cast<std::int64_t>(tensor.role)], tensor.pointer)
        << to_string(tensor.role);
  for (const PlanScalar& scalar : plan->plan().scalars) {
    ASSERT_NE(given[scalar.uid], nullptr);
    EXPECT_EQ(std::string(static_cast<char*>(given[scalar.uid]), scalar.value.size()),
              scalar.value);
  }
  EXPECT_EQ(given.size(), plan->plan().tensors.size() + plan->plan().scalars.size() +
                              plan->plan().workspace.size());
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_PACKS), 0U) << "each goes with its run";
}

TEST_F(LoadedPlans, GoInAnyOrder) {
  auto plan = load(0);
  auto second = load(0);
  ASSERT_TRUE(plan && second);
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_HANDLES_MADE), 1U) << "one for both";
  handles_ = {};
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_HANDLES), 1U) << "the plans own it";
  plan.reset();
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_PLANS), 1U);
  EXPECT_TRUE(run(*second, arguments(second->plan(), second->context().handle())));
  second.reset();
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_PLANS), 0U);
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_HANDLES), 0U);
  EXPECT_EQ(simulated_.alive(KILN_SIMULATED_MODULES), 0U);
  EXPECT_EQ(simulated_.alive(KILN_SIMULATED_CONTEXTS), 0U);
}

TEST_F(LoadedPlans, OfADriverThatHasEndedGoInSilence) {
  auto plan = load(0);
  ASSERT_TRUE(plan);
  simulated_.deinitialize();
  testing::internal::CaptureStderr();
  plan.reset();
  handles_ = {};
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

/// A program with a plan in static storage: older than cuDNN, or than its handles only.
[[noreturn]] void end_with_a_plan() {
  static std::shared_ptr<const LoadedPlan> oldest;
  const auto& simulated = *new test::SimulatedDriver("9.0");
  const auto& simulated_cudnn = *new test::SimulatedCudnn(simulated);
  const auto library = CudnnLibrary::open(simulated_cudnn.path()).value();
  static std::shared_ptr<const LoadedPlan> plan;
  const auto handles = CudnnHandles::of(library, test::context_of(simulated));
  plan = LoadedPlan::load(handles, plan_for(simulated, 0)).value();
  oldest = LoadedPlan::load(handles, plan_for(simulated, 0)).value();
  std::exit(0);  // NOLINT(concurrency-mt-unsafe)
}

TEST_F(LoadedPlans, InStaticStorageCallNothingThatHasEnded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // there are threads by now
  EXPECT_EXIT(end_with_a_plan(), testing::ExitedWithCode(0), "^$");
}

TEST_F(LoadedPlans, InAForkedChildCallNeitherCudnnNorTheDriver) {
  auto plan = load(0);
  ASSERT_TRUE(plan);
  const auto with = arguments(plan->plan(), context(0));
  const auto calls = [&] {
    return simulated_.calls("cuCtxGetCurrent") + simulated_.calls("cuMemFree") +
           simulated_.calls("cuModuleUnload");
  };
  test::ChildProcess child([&] {
    const auto before = calls();
    const auto ran = run(*plan, with);
    const bool is_clear =
        !ran && ran.error().code == ErrorCode::kUnavailable &&
        ran.error().message.find("forked after cuDNN was started") != std::string::npos;
    const bool is_prepared = bool(plan->prepare());
    plan.reset();
    handles_ = {};
    return is_clear && !is_prepared && calls() == before &&
                   count(KILN_SIMULATED_CUDNN_HANDLES) == 1 &&
                   count(KILN_SIMULATED_CUDNN_PLANS) == 1
               ? 0
               : 1;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(run(*plan, with)) << "the parent goes on";
}

TEST_F(LoadedPlans, FindTheirWorkspaceAsTheyWantItAtEveryRun) {
  const auto plan = load(0, plan_with_a_workspace(simulated_, 0));
  ASSERT_TRUE(plan);
  const Plan& what = plan->plan();
  const auto with = arguments(what, context(0));
  auto* const bytes = static_cast<unsigned char*>(with.workspace.pointer);
  for (int i = 0; i < 2; ++i) {
    std::fill_n(bytes, with.workspace.bytes, 0xFF);
    const auto ran = run(*plan, with);
    ASSERT_TRUE(ran) << ran.error().message;
    expect_filled(what, bytes);
    EXPECT_EQ(cudnn_->runs().back().workspace, bytes + what.graph_workspace_bytes);
  }
}

}  // namespace
}  // namespace kiln::attention
