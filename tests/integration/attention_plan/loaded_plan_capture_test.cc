// Plans in CUDA graphs.

#include <algorithm>
#include <thread>

#include "tests/integration/attention_plan/loaded_plans.h"

namespace kiln::attention {
namespace {

class CapturedPlans : public LoadedPlans {
 protected:
  void SetUp() override {
    LoadedPlans::SetUp();
    if (IsSkipped())
      return;
    plan_ = load(0, plan_with_a_workspace(simulated_, 0));
    ASSERT_TRUE(plan_);
    with_ = arguments(plan_->plan(), context(0));
    stream_ = test::stream_of(simulated_, context(0));
  }

  void begin() const {
    ASSERT_EQ(simulated_.find<decltype(::cuStreamBeginCapture)>(
                  "cuStreamBeginCapture_v2")(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_SUCCESS);
  }

  [[nodiscard]] CUgraph end() const {
    CUgraph graph = nullptr;
    EXPECT_EQ(simulated_.find<decltype(::cuStreamEndCapture)>("cuStreamEndCapture")(
                  stream_, &graph),
              CUDA_SUCCESS)
        << "something disturbed the capture";
    return graph;
  }

  [[nodiscard]] std::size_t nodes(CUgraph graph) const {
    std::size_t count = 0;
    EXPECT_EQ(simulated_.find<decltype(::cuGraphGetNodes)>("cuGraphGetNodes")(
                  graph, nullptr, &count),
              CUDA_SUCCESS);
    return count;
  }

  /// `body` on a thread of its own, the device's context current.
  template <typename Body>
  void on_another_thread(const Body& body) const {
    std::thread([&] {
      test::make_current(simulated_, context(0));
      body();
    }).join();
  }

  std::shared_ptr<const LoadedPlan> plan_;
  Arguments with_;
  CUstream stream_ = nullptr;
};

TEST_F(CapturedPlans, WithoutPrepareAreAClearErrorThatLeavesTheCaptureWhole) {
  on_another_thread([&] {
    begin();
    EXPECT_THAT(refusal(run(*plan_, with_, stream_)),
                AllOf(HasSubstr("a stream is being captured"),
                      HasSubstr("call prepare() on it before the capture")));
    EXPECT_EQ(nodes(end()), 0U);
  });
  EXPECT_EQ(count(KILN_SIMULATED_CUDNN_HANDLES_MADE), 1U);
}

TEST_F(CapturedPlans, AfterPrepareAreRecordedAndRepeatWhatTheyDo) {
  on_another_thread([&] {
    ASSERT_TRUE(plan_->prepare());
    const auto prepared = count(KILN_SIMULATED_CUDNN_PLANS_LOADED);
    begin();
    const auto ran = run(*plan_, with_, stream_);
    EXPECT_TRUE(ran) << ran.error().message;
    const CUgraph graph = end();
    EXPECT_EQ(count(KILN_SIMULATED_CUDNN_PLANS_LOADED), prepared);
    const auto launches = simulated_.launches();
    ASSERT_EQ(launches.size(), plan_->plan().kernels.size());
    for (const auto& each : launches) EXPECT_EQ(each.is_captured, 1);
    EXPECT_GE(nodes(graph), launches.size());

    CUgraphExec executable = nullptr;
    ASSERT_EQ(simulated_.find<decltype(::cuGraphInstantiateWithFlags)>(
                  "cuGraphInstantiateWithFlags")(&executable, graph, 0),
              CUDA_SUCCESS);
    auto* const bytes = static_cast<unsigned char*>(with_.workspace.pointer);
    for (int i = 0; i < 2; ++i) {
      std::fill_n(bytes, with_.workspace.bytes, 0xFF);
      ASSERT_EQ(simulated_.find<decltype(::cuGraphLaunch)>("cuGraphLaunch")(executable,
                                                                            stream_),
                CUDA_SUCCESS);
      expect_filled(plan_->plan(), bytes);
    }
    EXPECT_EQ(simulated_.launches().size(), 3 * launches.size());
  });
}

TEST_F(CapturedPlans, OfTheThreadThatLoadedThemNeedNoMore) {
  test::make_current(simulated_, context(0));
  begin();
  EXPECT_TRUE(run(*plan_, with_, stream_));
  EXPECT_GE(nodes(end()), 1U);
}

TEST_F(CapturedPlans, AreLoadedByAnotherThreadWithoutDisturbingTheCapture) {
  test::make_current(simulated_, context(0));
  begin();
  on_another_thread([&] {
    const CUstream other = test::stream_of(simulated_, context(0));
    const auto ran = run(*plan_, with_, other);
    EXPECT_TRUE(ran) << ran.error().message;
  });
  EXPECT_EQ(nodes(end()), 0U);
}

}  // namespace
}  // namespace kiln::attention
