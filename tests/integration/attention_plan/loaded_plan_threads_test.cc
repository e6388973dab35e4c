// Several threads and one plan.

#include <barrier>
#include <set>
#include <thread>

#include "tests/integration/attention_plan/loaded_plans.h"
#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"

namespace kiln::attention {
namespace {

constexpr std::size_t kThreads = 4;

TEST_F(LoadedPlans, AreRunBySeveralThreadsEachWithItsOwnHandleAndDescriptor) {
  const auto plan = load(0);
  ASSERT_TRUE(plan);
  constexpr int kRuns = 50;
  std::barrier together(kThreads);
  const auto work = [&] {
    const CUstream stream = test::stream_of(simulated_, context(0));
    const auto with = arguments(plan->plan(), context(0));
    together.arrive_and_wait();
    for (int i = 0; i < kRuns; ++i) {
      const auto ran = run(*plan, with, stream);
      EXPECT_TRUE(ran) << ran.error().message;
    }
    together.arrive_and_wait();  // nobody's handle is free before
  };
  test::in_threads(kThreads, work);
  std::map<CUstream, std::set<std::pair<void*, void*>>> used;
  std::set<void*> handles;
  for (const auto& each : cudnn_->runs()) {
    used[each.stream].insert({each.handle, each.plan});
    handles.insert(each.handle);
  }
  EXPECT_EQ(used.size(), kThreads);
  for (const auto& [stream, pairs] : used) EXPECT_EQ(pairs.size(), 1U);
  EXPECT_EQ(handles.size(), kThreads);
  EXPECT_EQ(cudnn_->runs().size(), kThreads * kRuns);
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_OVERLAPS), 0U);
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_PLANS_LOADED), kThreads + 1)
      << "and the loader's";
}

TEST_F(LoadedPlans, ThatCannotBeMadeReadyOnOneThreadServeTheOthers) {
  const auto plan = load(0);
  ASSERT_TRUE(plan);
  const auto with = arguments(plan->plan(), context(0));
  std::thread([&] {
    cudnn_->inject("cudnnBackendFinalize", 4000);
    EXPECT_THAT(run(*plan, with), test::IsError(ErrorCode::kDevice));
    EXPECT_TRUE(run(*plan, with)) << "once more";
  }).join();
  EXPECT_TRUE(run(*plan, with));
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_PLANS), 2U) << "none is left over";
}

TEST_F(LoadedPlans, OfAThreadThatEndedServeTheNextOne) {
  const auto plan = load(0);
  ASSERT_TRUE(plan);
  const auto with = arguments(plan->plan(), context(0));
  for (int i = 0; i < 8; ++i)
    std::thread([&] { EXPECT_TRUE(run(*plan, with)); }).join();
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_HANDLES_MADE), 2U) << "this thread's and theirs";
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_PLANS_LOADED), 2U);
}

TEST_F(LoadedPlans, MayGoBeforeTheThreadsThatRanThem) {
  auto plan = load(0);
  ASSERT_TRUE(plan);
  const auto with = arguments(plan->plan(), context(0));
  std::barrier step(2);
  std::thread other([&] {
    EXPECT_TRUE(run(*plan, with));
    step.arrive_and_wait();
    step.arrive_and_wait();  // all is gone; this thread's lease is of nothing
  });
  step.arrive_and_wait();
  plan.reset();
  handles_ = {};
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_HANDLES), 0U);
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_PLANS), 0U);
  step.arrive_and_wait();
  other.join();
  EXPECT_EQ(simulated_.alive(KILN_SIMULATED_CONTEXTS), 0U);
}

TEST_F(LoadedPlans, OfTwoDevicesByTwoThreadsGoEachToItsOwn) {
  const std::array plans{load(0), load(1)};
  ASSERT_TRUE(plans[0] && plans[1]);
  const auto work = [&](std::size_t device) {
    const auto with = arguments(plans[device]->plan(), context(device));
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(run(*plans[device], with));
  };
  test::in_threads(plans.size(), work);
  std::array<int, 2> runs{};
  for (const auto& each : cudnn_->runs()) {
    EXPECT_EQ(each.context, context(static_cast<std::size_t>(each.device)));
    ++runs.at(static_cast<std::size_t>(each.device));
  }
  EXPECT_THAT(runs, testing::ElementsAre(50, 50));
}

}  // namespace
}  // namespace kiln::attention
