// Plans on bad days: the worker that builds one killed, crashed, stopped and starved;
// stored plans damaged, or with kernels of another architecture in them. The caller
// gets a plan that is right or a clear error, in bounded time.

#include <csignal>
#include <fstream>
#include <future>

#include "cudnn/plan_service.h"
#include "tests/support/attention_problem.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/is_error.h"
#include "tests/support/made_plan.h"
#include "tests/support/processes.h"
#include "tests/support/service_requests.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

class PlanFaultTest : public testing::Test {
 protected:
  void SetUp() override {
    open({});
    const auto keyed = plans_->key(test::attention_problem(), h200_);
    if (!keyed)
      GTEST_SKIP() << keyed.error().message;
    keyed_ = *keyed;
  }

  void open(const std::function<void(Config&)>& change) {
    plans_.reset();
    Config config = test::service_config(temp_.path() / "cache");
    if (change)
      change(config);
    service_ = test::open_service(config);
    plans_ = std::make_unique<PlanService>(*service_);
  }

  /// Sends `signal` to the plan worker as soon as there is one.
  Result<FetchedPlan> fetch_and_send(int signal) {
    auto fetched =
        std::async(std::launch::async, [&] { return plans_->fetch(keyed_); });
    pid_t worker = -1;
    EXPECT_TRUE(test::eventually(20s, [&] {
      worker = plan_worker();
      return worker != -1;
    }));
    if (worker != -1 && ::kill(worker, signal) == 0)
      campaign_.injected();
    return fetched.get();
  }

  /// Past its start: what strikes it then strikes a build.
  static bool is_in_cudnn(pid_t pid) {
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    const std::string text(std::istreambuf_iterator<char>(maps), {});
    return text.find("libcudnn_graph") != std::string::npos;
  }

  static pid_t plan_worker() {
    for (const pid_t child : test::children_of(::getpid())) {
      std::error_code gone;
      const auto program =
          fs::read_symlink("/proc/" + std::to_string(child) + "/exe", gone);
      if (program.filename() == "kiln-plan-worker" && is_in_cudnn(child))
        return child;
    }
    return -1;
  }

  void expect_a_plan(FetchOutcome outcome) {
    const auto fetched = plans_->fetch(keyed_);
    ASSERT_TRUE(fetched) << fetched.error().message;
    ASSERT_NE(fetched->object, nullptr) << to_string(fetched->attempts);
    EXPECT_EQ(fetched->outcome, outcome);
    const auto plan = attention::decode_plan(fetched->object->payload());
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_TRUE(check_fully(*plan));
    EXPECT_EQ(attention::describe_difference(plan->bound, keyed_.bound), "");
  }

  [[nodiscard]] fs::path object_path() const {
    return service_->cache().layout().object(keyed_.key);
  }

  const test::TempDir temp_;
  const device::DeviceProperties h200_ = test::published_device("h200");
  test::Campaign campaign_;
  std::unique_ptr<BuildService> service_;
  std::unique_ptr<PlanService> plans_;
  KeyedPlan keyed_;
};

TEST_F(PlanFaultTest, fault_38_AKilledPlanWorkerIsNamedAndTheNextBuildSucceeds) {
  // Not SIGSEGV: AddressSanitizer makes an exit of it.
  for (const int signal : {SIGILL, SIGABRT}) {
    EXPECT_THAT(
        fetch_and_send(signal),
        test::IsError(ErrorCode::kWorkerCrashed,
                      AllOf(HasSubstr("the plan of attention fwd bf16 b2"),
                            HasSubstr("was killed by signal " + std::to_string(signal)),
                            HasSubstr("saved in "))));
    EXPECT_FALSE(fs::exists(object_path()));
    open({});
  }
  expect_a_plan(FetchOutcome::kCompiled);
  expect_a_plan(FetchOutcome::kHit);
}

TEST_F(PlanFaultTest, fault_48_APlanWorkerThatIsKilledFromOutsideIsTriedOnceMore) {
  const auto fetched = fetch_and_send(SIGKILL);
  ASSERT_TRUE(fetched) << fetched.error().message;
  EXPECT_EQ(fetched->outcome, FetchOutcome::kCompiled);
  expect_a_plan(FetchOutcome::kHit);
}

TEST_F(PlanFaultTest, fault_38_AStoppedPlanWorkerEndsAtItsTimeLimit) {
  open([](Config& config) { config.compile_timeout = 1s; });
  const auto began = std::chrono::steady_clock::now();
  const auto failed = fetch_and_send(SIGSTOP);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);
  EXPECT_THAT(failed,
              test::IsError(ErrorCode::kTimeout, HasSubstr("over its limit of 1.0 s")));
  EXPECT_TRUE(test::eventually(5s, [] { return plan_worker() == -1; }));
  open({});
  expect_a_plan(FetchOutcome::kCompiled);
}

TEST_F(PlanFaultTest, fault_38_APlanWorkerOverItsMemoryLimitEnds) {
  open([](Config& config) { config.worker_memory_bytes = 24U << 20U; });
  campaign_.injected();
  const auto failed = plans_->fetch(keyed_);
  EXPECT_THAT(failed, test::IsError(ErrorCode::kResourceLimit));
  open({});
  expect_a_plan(FetchOutcome::kCompiled);
}

TEST_F(PlanFaultTest, fault_38_AReproductionOfAPlanSaysHowToRunItAgain) {
  const auto failed = fetch_and_send(SIGABRT);
  ASSERT_FALSE(failed);
  const std::string& said = failed.error().message;
  const fs::path folder = said.substr(said.find("saved in ") + 9);
  std::ifstream command(folder / "command");
  const std::string text(std::istreambuf_iterator<char>(command), {});
  EXPECT_THAT(text, AllOf(HasSubstr("kiln attention warm --profile " +
                                    (folder / "device.json").native()),
                          HasSubstr("--pass fwd --dtype bf16 --layout bshd")));
  EXPECT_EQ(device::read_device_properties(folder / "device.json").value(),
            keyed_.device);
}

TEST_F(PlanFaultTest, fault_39_AFlippedOrTruncatedPlanIsAMissAndBuiltAgain) {
  expect_a_plan(FetchOutcome::kCompiled);
  std::ifstream file(object_path(), std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(file), {});
  constexpr std::size_t kPlaces = 60;
  for (std::size_t i = 0; i < kPlaces; ++i) {
    std::string damaged = whole;
    const std::size_t at = whole.size() * i / kPlaces;
    if (i % 2 == 0)
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
    else
      damaged.resize(at);
    fs::create_directories(object_path().parent_path());
    std::ofstream(object_path(), std::ios::binary) << damaged;
    fs::permissions(object_path(), fs::perms::owner_read);
    campaign_.injected();
    EXPECT_FALSE(service_->cache().find(keyed_.key, "sm_90")) << at;
    fs::remove(object_path());
  }
  open({});
  expect_a_plan(FetchOutcome::kCompiled);
}

TEST_F(PlanFaultTest, fault_39_APlanWithAKernelOfAnotherArchitectureIsNeverHandedOut) {
  const auto object_with = [&](std::uint32_t sm) {
    const Bytes payload = encode(test::made_plan(h200_, sm));
    cache::Metadata metadata;
    metadata.template_name = PlanService::name_of(keyed_.problem);
    metadata.entry_points = {{"k", "k"}};
    return cache::StoredObject::make({.kind = cache::Kind::kPlan,
                                      .target = "sm_90",
                                      .metadata = metadata,
                                      .preimage = PlanService::preimage(keyed_),
                                      .payload = payload,
                                      .log = "",
                                      .source = "",
                                      .ptx = ""})
        .value();
  };
  cache::Cache& cache = service_->cache();
  EXPECT_FALSE(cache.publish(object_with(90)).error);
  EXPECT_TRUE(cache.find(keyed_.key, "sm_90"));
  ASSERT_TRUE(fs::remove(object_path()));

  const cache::StoredObject foreign = object_with(80);
  EXPECT_TRUE(cache.publish(foreign).error);
  // As somebody might who knows the format, with every checksum right.
  std::ofstream(object_path(), std::ios::binary) << as_text(foreign.file());
  fs::permissions(object_path(), fs::perms::owner_read);
  campaign_.injected();
  EXPECT_FALSE(cache.find(keyed_.key, "sm_90"));
  expect_a_plan(FetchOutcome::kCompiled);
}

}  // namespace
}  // namespace kiln
