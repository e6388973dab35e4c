// From a problem and a device to the right plan, cached and loaded there.

#include "library/attention_decisions.h"

#include <array>
#include <atomic>

#include "tests/integration/attention_plan/loaded_plans.h"
#include "tests/support/in_threads.h"
#include "tests/support/service_requests.h"

namespace kiln::attention {
namespace {

/// A service with its own memory; all of a test share one cache.
struct Host {
  Host(const Config& config, const device::Driver& driver,
       const test::SimulatedCudnn& cudnn)
      : builds(test::open_service(config)),
        devices(Devices::open(driver).value()),
        attention(*builds, *devices) {
    attention.load_plans_with(cudnn.path());
  }

  std::unique_ptr<BuildService> builds;
  std::unique_ptr<Devices> devices;
  AttentionDecisions attention;
};

class AttentionDecisionsTest : public LoadedPlans {
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

  [[nodiscard]] std::unique_ptr<Host> make_host(
      const std::function<void(Config&)>& change = {}) const {
    Config config = test::service_config(temp_.path() / "cache");
    config.cudnn = test::real_cudnn();
    if (change)
      change(config);
    return std::make_unique<Host>(
        config, device::Driver::open(simulated_.path(), {}).value().value(), *cudnn_);
  }

  /// On another machine, to which the cache of the others is a seed.
  [[nodiscard]] std::unique_ptr<Host> make_seeded(bool no_jit = false) const {
    return make_host([&](Config& config) {
      config.seeds = {std::exchange(config.cache_dir, temp_.path() / "node")};
      config.no_jit = no_jit;
    });
  }

  [[nodiscard]] const Device& device(std::size_t i) const {
    return host_->devices->list().at(i);
  }

  [[nodiscard]] std::uint64_t builds() const {
    return test::counted(*host_->builds, cache::Counter::kCompiled);
  }

  const AttentionDecision& decide(Host& host, std::size_t i,
                                  const Problem& problem = base()) {
    const auto decided = host.attention.decide(
        {.problem = problem, .device = device(i).ordinal}, device(i));
    if (decided)
      return **decided;
    ADD_FAILURE() << decided.error().message;
    static const AttentionDecision none{};
    return none;
  }

  /// As a caller would who has asked for the plan's workspace before.
  std::string run(Host& host, std::size_t i, const Problem& problem = base()) {
    const AttentionDecision& decision = decide(host, i, problem);
    if (decision.plan == nullptr)
      return decision.reason;
    const Arguments with = arguments(decision.plan->plan(), context(i));
    const auto ran = decision.plan->run(streams_[i], with.tensors, with.workspace);
    return ran ? "done" : ran.error().message;
  }

  /// Under the key of this driver, for device 0, lies a plan of the next driver.
  [[nodiscard]] Digest publish_a_plan_of_another_driver() const {
    const auto properties =
        device::parse_device_properties(host_->devices->profile(device(0)).value())
            .value();
    PlanService plans(*host_->builds);
    const KeyedPlan wanted = plans.key(base(), properties).value();
    device::DeviceProperties newer = properties;
    newer.driver_version += 10;
    const auto built = plans.fetch(plans.key(base(), newer).value()).value();
    const auto object =
        cache::StoredObject::make({.kind = cache::Kind::kPlan,
                                   .target = built.object->target(),
                                   .metadata = built.object->metadata().value(),
                                   .preimage = PlanService::preimage(wanted),
                                   .payload = built.object->payload(),
                                   .log = "",
                                   .source = "",
                                   .ptx = ""});
    EXPECT_FALSE(host_->builds->cache().publish(object.value()).error);
    return wanted.key;
  }

  const test::TempDir temp_;
  std::unique_ptr<Host> host_;
  std::array<CUstream, 2> streams_{};
};

TEST_F(AttentionDecisionsTest, EachDeviceRunsAPlanThatWasBuiltForIt) {
  for (std::size_t i = 0; i < 2; ++i) ASSERT_EQ(run(*host_, i), "done");
  EXPECT_EQ(builds(), 2U);
  const auto runs = cudnn_->runs();
  ASSERT_EQ(runs.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto loaded = decide(*host_, i).plan;
    EXPECT_EQ(loaded->context().device().ordinal, static_cast<int>(i));
    EXPECT_EQ(bound_capability(loaded->plan()).value(), device(i).capability);
  }
}

TEST_F(AttentionDecisionsTest, ASecondRunNeitherBuildsNorLoads) {
  ASSERT_EQ(run(*host_, 0), "done");
  const auto loads = cudnn_->count(KILN_SIMULATED_CUDNN_PLANS_LOADED);
  ASSERT_EQ(run(*host_, 0), "done");
  EXPECT_EQ(cudnn_->count(KILN_SIMULATED_CUDNN_PLANS_LOADED), loads);
  EXPECT_EQ(builds(), 1U);
}

TEST_F(AttentionDecisionsTest, AnExplanationSaysWhatACallWouldRun) {
  const auto without = make_host([](Config& config) { config.no_jit = true; });
  const Explanation missing = without->attention.explain(base(), device(0));
  EXPECT_EQ(missing.chosen, Choice::kKiln);
  EXPECT_FALSE(missing.probe.ran);
  EXPECT_EQ(missing.probe.status, "not_run");
  EXPECT_THAT(missing.probe.message, HasSubstr("KILN_NO_JIT"));
  EXPECT_EQ(decide(*without, 0).plan, nullptr);

  const Explanation built = host_->attention.explain(base(), device(0));
  EXPECT_EQ(built.chosen, Choice::kCudnn);
  EXPECT_EQ(built.probe.status, "built");
  EXPECT_NE(decide(*host_, 0).plan, nullptr);
  EXPECT_EQ(builds(), 1U);
}

TEST_F(AttentionDecisionsTest, AnotherServiceTakesThePlanFromDisk) {
  ASSERT_EQ(run(*host_, 0), "done");
  const auto second = make_host();
  ASSERT_EQ(run(*second, 0), "done");
  EXPECT_EQ(test::counted(*second->builds, cache::Counter::kCompiled), 0U);
}

TEST_F(AttentionDecisionsTest, ThreadsThatAskAtOnceBuildAndLoadOnePlan) {
  constexpr std::size_t kThreads = 8;
  std::array<std::shared_ptr<const LoadedPlan>, kThreads> plans;
  std::atomic<std::size_t> done = 0;
  const auto ask = [&](std::size_t i) {
    test::make_current(simulated_, context(0));
    Problem problem = base();
    problem.capture = i % 2 == 0;  // another question, which the same plan answers
    plans.at(i) = decide(*host_, 0, problem).plan;
    done += run(*host_, 0, problem) == "done" ? 1 : 0;
  };
  test::in_threads(kThreads, ask);
  EXPECT_EQ(done, kThreads);
  EXPECT_EQ(builds(), 1U);
  for (const auto& plan : plans) EXPECT_TRUE(plan == plans[0]) << "loaded twice";
}

TEST_F(AttentionDecisionsTest, AnotherMachineTakesThePlanFromASeed) {
  ASSERT_EQ(run(*host_, 0), "done");
  const auto node = make_seeded(/*no_jit=*/true);
  EXPECT_EQ(run(*node, 0), "done");
  EXPECT_EQ(test::counted(*node->builds, cache::Counter::kSeedHits), 1U);
  EXPECT_EQ(cudnn_->runs().size(), 2U);
  EXPECT_THAT(run(*node, 1), HasSubstr("KILN_NO_JIT")) << "of that device it has none";
}

TEST_F(AttentionDecisionsTest, APlanThatIsRefusedIsAMissAndBuiltAgain) {
  std::ignore = publish_a_plan_of_another_driver();
  ASSERT_EQ(run(*host_, 0), "done");
  EXPECT_EQ(builds(), 2U);
  const auto second = make_host();
  EXPECT_EQ(run(*second, 0), "done");
  EXPECT_EQ(test::counted(*second->builds, cache::Counter::kCompiled), 0U);
}

TEST_F(AttentionDecisionsTest, ARefusedPlanOfASeedIsBuiltOnceAndStaysInTheSeed) {
  const Digest wrong = publish_a_plan_of_another_driver();
  for (const unsigned built : {1U, 0U}) {
    const auto node = make_seeded();
    ASSERT_EQ(run(*node, 0), "done");
    EXPECT_EQ(test::counted(*node->builds, cache::Counter::kCompiled), built);
    EXPECT_EQ(test::counted(*node->builds, cache::Counter::kSeedHits), built);
  }
  EXPECT_TRUE(host_->builds->cache().find(wrong)) << "nobody removes what is a seed's";
}

TEST_F(AttentionDecisionsTest, ProblemsThatOnePlanServesLoadItOnce) {
  Problem captured = base();
  captured.capture = true;
  ASSERT_EQ(run(*host_, 0), "done");
  const auto loads = cudnn_->count(KILN_SIMULATED_CUDNN_PLANS_LOADED);
  EXPECT_EQ(run(*host_, 0, captured), "done");
  EXPECT_EQ(cudnn_->count(KILN_SIMULATED_CUDNN_PLANS_LOADED), loads);
  EXPECT_EQ(decide(*host_, 0).plan, decide(*host_, 0, captured).plan);
  EXPECT_EQ(builds(), 1U);
}

TEST_F(AttentionDecisionsTest, ARefusalNamesTheRuleAndWhatHelps) {
  Problem problem = with_dims(base(Pass::kBackward), 192, 128);
  problem.stats = true;
  EXPECT_THAT(run(*host_, 1, problem),
              AllOf(HasSubstr("head_dim.backward.ampere: "),
                    HasSubstr("use another attention kernel")));
  EXPECT_EQ(run(*host_, 0, problem), "done");
}

}  // namespace
}  // namespace kiln::attention
