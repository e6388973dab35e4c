// From a problem and a stream to a run of the right plan: cached, loaded on the
// stream's device, prepared before a capture.

#include "cudnn/attention_plans.h"

#include <thread>

#include "tests/integration/attention_plan/loaded_plans.h"
#include "tests/support/service_requests.h"

namespace kiln::attention {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A service with its own memory; all of a test share one cache.
struct Host {
  Host(const Config& config, const device::Driver& driver,
       const test::SimulatedCudnn& cudnn)
      : builds(test::open_service(config)),
        plans(*builds),
        devices(Devices::open(driver).value()),
        attention(plans, *devices, cudnn.path()) {}

  std::unique_ptr<BuildService> builds;
  PlanService plans;
  std::unique_ptr<Devices> devices;
  AttentionPlans attention;
};

class AttentionPlansTest : public LoadedPlans {
 protected:
  void SetUp() override {
    LoadedPlans::SetUp();
    if (IsSkipped())
      return;
    host_ = make_host();
    for (std::size_t i = 0; i < 2; ++i)
      streams_[i] = test::stream_of(simulated_, context(i));
    // As of whoever has made a stream; which one does not matter.
    test::make_current(simulated_, context(0));
  }

  [[nodiscard]] std::unique_ptr<Host> make_host() const {
    Config config = test::service_config(temp_.path() / "cache");
    config.cudnn = test::real_cudnn();
    return std::make_unique<Host>(
        config, device::Driver::open(simulated_.path(), {}).value().value(), *cudnn_);
  }

  [[nodiscard]] const Device& device(std::size_t i) const {
    return host_->devices->list().at(i);
  }

  [[nodiscard]] std::uint64_t builds() const {
    return test::counted(*host_->builds, cache::Counter::kCompiled);
  }

  /// As a caller would who knows the plan's workspace from prepare().
  Result<void> run(Host& host, std::size_t i, const Problem& problem = base()) {
    const auto prepared = KILN_TRY(host.attention.prepare(problem, device(i)));
    const Arguments with = arguments(prepared->plan(), context(i));
    return host.attention.run(problem, streams_[i], with.tensors, with.workspace);
  }

  const test::TempDir temp_;
  std::unique_ptr<Host> host_;
  std::array<CUstream, 2> streams_{};
};

std::string why(const Result<void>& result) {
  return result ? "done" : result.error().message;
}

TEST_F(AttentionPlansTest, EachDeviceRunsAPlanThatWasBuiltForIt) {
  for (std::size_t i = 0; i < 2; ++i) ASSERT_EQ(why(run(*host_, i)), "done");
  EXPECT_EQ(builds(), 2U);
  const auto runs = cudnn_->runs();
  ASSERT_EQ(runs.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto loaded = host_->attention.prepare(base(), device(i)).value();
    EXPECT_EQ(loaded->context().device().ordinal, static_cast<int>(i));
    EXPECT_EQ(bound_capability(loaded->plan()).value(), device(i).capability);
  }
}

TEST_F(AttentionPlansTest, ASecondRunNeitherBuildsNorLoads) {
  ASSERT_EQ(why(run(*host_, 0)), "done");
  const auto loads = cudnn_->count(KILN_SIMULATED_CUDNN_PLANS_LOADED);
  ASSERT_EQ(why(run(*host_, 0)), "done");
  EXPECT_EQ(cudnn_->count(KILN_SIMULATED_CUDNN_PLANS_LOADED), loads);
  EXPECT_EQ(builds(), 1U);
}

TEST_F(AttentionPlansTest, AnotherServiceTakesThePlanFromDisk) {
  ASSERT_EQ(why(run(*host_, 0)), "done");
  const auto second = make_host();
  ASSERT_EQ(why(run(*second, 0)), "done");
  EXPECT_EQ(test::counted(*second->builds, cache::Counter::kCompiled), 0U);
}

TEST_F(AttentionPlansTest, ThreadsThatAskAtOnceBuildAndLoadOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> done = 0;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      test::make_current(simulated_, context(0));
      done += run(*host_, 0).has_value() ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 8);
  EXPECT_EQ(builds(), 1U);
}

TEST_F(AttentionPlansTest, AStreamDecidesTheDevice) {
  const auto prepared = host_->attention.prepare(base(), device(1)).value();
  const Arguments with = arguments(prepared->plan(), context(1));
  // Memory of device 1 on a stream of device 0: nothing is run.
  EXPECT_THAT(
      why(host_->attention.run(base(), streams_[0], with.tensors, with.workspace)),
      AllOf(HasSubstr("on device 0"), HasSubstr("device 1")));
  EXPECT_TRUE(cudnn_->runs().empty());
}

TEST_F(AttentionPlansTest, UnderCaptureWhatWasNotPreparedIsAClearError) {
  const auto begin = [&] {
    return simulated_.find<decltype(::cuStreamBeginCapture)>("cuStreamBeginCapture_v2")(
        streams_[0], CU_STREAM_CAPTURE_MODE_GLOBAL);
  };
  const auto end = [&] {
    CUgraph graph = nullptr;
    return simulated_.find<decltype(::cuStreamEndCapture)>("cuStreamEndCapture")(
        streams_[0], &graph);
  };
  ASSERT_EQ(begin(), CUDA_SUCCESS);
  EXPECT_THAT(why(host_->attention.run(base(), streams_[0], {}, {})),
              AllOf(HasSubstr("is being captured"), HasSubstr("call prepare()")));
  EXPECT_EQ(end(), CUDA_SUCCESS) << "the capture was disturbed";

  const auto prepared = host_->attention.prepare(base(), device(0)).value();
  const Arguments with = arguments(prepared->plan(), context(0));
  ASSERT_EQ(begin(), CUDA_SUCCESS);
  EXPECT_EQ(
      why(host_->attention.run(base(), streams_[0], with.tensors, with.workspace)),
      "done");
  EXPECT_EQ(end(), CUDA_SUCCESS);
}

TEST_F(AttentionPlansTest, AStoredPlanThatIsRefusedIsAMissAndBuiltAgain) {
  const auto properties =
      device::parse_device_properties(host_->devices->profile(device(0)).value())
          .value();
  const KeyedPlan wanted = host_->plans.key(base(), properties).value();
  device::DeviceProperties newer = properties;
  newer.driver_version += 10;
  const KeyedPlan other = host_->plans.key(base(), newer).value();
  const auto built = host_->plans.fetch(other).value();
  // Under the key of this driver lies a plan of the next.
  const auto object =
      cache::StoredObject::make({.kind = cache::Kind::kPlan,
                                 .target = built.object->target(),
                                 .metadata = built.object->metadata().value(),
                                 .preimage = PlanService::preimage(wanted),
                                 .payload = built.object->payload(),
                                 .log = "",
                                 .source = "",
                                 .ptx = ""});
  ASSERT_TRUE(object) << object.error().message;
  ASSERT_FALSE(host_->builds->cache().publish(*object).error);

  ASSERT_EQ(why(run(*host_, 0)), "done");
  EXPECT_EQ(builds(), 2U);
  const auto second = make_host();
  EXPECT_EQ(why(run(*second, 0)), "done");
  EXPECT_EQ(test::counted(*second->builds, cache::Counter::kCompiled), 0U);
}

TEST_F(AttentionPlansTest, ProblemsThatOnePlanServesLoadItOnce) {
  Problem captured = base();
  captured.capture = true;
  ASSERT_EQ(why(run(*host_, 0)), "done");
  const auto loads = cudnn_->count(KILN_SIMULATED_CUDNN_PLANS_LOADED);
  EXPECT_EQ(why(run(*host_, 0, captured)), "done");
  EXPECT_EQ(cudnn_->count(KILN_SIMULATED_CUDNN_PLANS_LOADED), loads);
  const auto before = host_->attention.prepare(base(), device(0)).value();
  host_->attention.clear();
  EXPECT_NE(host_->attention.prepare(base(), device(0)).value(), before);
  EXPECT_EQ(builds(), 1U);
}

TEST_F(AttentionPlansTest, ARefusalNamesTheRuleAndWhatHelps) {
  Problem problem = with_dims(base(Pass::kBackward), 192, 128);
  problem.stats = true;
  EXPECT_THAT(why(run(*host_, 1, problem)),
              AllOf(HasSubstr("on device 1"), HasSubstr("head_dim.backward.ampere"),
                    HasSubstr("use another attention kernel")));
  EXPECT_EQ(why(run(*host_, 0, problem)), "done");
}

}  // namespace
}  // namespace kiln::attention
