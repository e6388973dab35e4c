// From an attention problem to a plan of the real cuDNN: built once, found again, or
// refused, which is an answer.

#include <fstream>
#include <future>
#include <set>

#include "tests/integration/plan_service/plan_service_fixture.h"
#include "tests/support/compile_jobs.h"
#include "tests/support/incomplete_cudnn.h"
#include "tests/support/is_error.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"

namespace kiln {
namespace {

using attention::Pass;
using attention::Problem;
using test::attention_problem;

class PlanServiceTest : public test::PlanServiceFixture {
 protected:
  static std::uint64_t compiled(const Opened& service) {
    return test::counted(*service.builds, cache::Counter::kCompiled);
  }
  static compile::PoolOptions plan_workers() {
    compile::PoolOptions options;
    options.worker = {.name = "kiln-plan-worker", .path = test::paths::kPlanWorker};
    return options;
  }
  [[nodiscard]] bool is_stored(const KeyedPlan& plan) const {
    return fs::exists(here_.builds->cache().layout().object(plan.key));
  }

  /// Refused twice, the second time from memory; nothing is stored. The attempts.
  std::vector<compile::PlanAttempt> expect_refused(const KeyedPlan& plan) {
    const auto first = here_.plans->fetch(plan);
    EXPECT_TRUE(first) << first.error().message;
    if (!first)
      return {};
    EXPECT_EQ(first->object, nullptr);
    EXPECT_EQ(first->outcome, FetchOutcome::kCompiled);
    EXPECT_THAT(first->attempts, Not(IsEmpty()));
    const auto second = here_.plans->fetch(plan);
    EXPECT_TRUE(second);
    if (second) {
      EXPECT_EQ(second->object, nullptr);
      EXPECT_EQ(second->outcome, FetchOutcome::kHit);
      EXPECT_EQ(second->attempts, first->attempts);
    }
    EXPECT_FALSE(is_stored(plan));
    EXPECT_EQ(compiled(here_), 0U);
    return first->attempts;
  }
};

Problem backward(const std::function<void(Problem&)>& change = {}) {
  return attention_problem([&](Problem& problem) {
    problem.pass = Pass::kBackward;
    problem.training = problem.stats = true;
    if (change)
      change(problem);
  });
}

TEST_F(PlanServiceTest, APlanIsBuiltOnceAndThenFoundByWhoeverAsks) {
  const KeyedPlan plan = key(attention_problem(), h200_);
  const auto built = here_.plans->fetch(plan);
  const auto object = object_of(built);
  ASSERT_NE(object, nullptr);
  EXPECT_EQ(built->outcome, FetchOutcome::kCompiled);
  EXPECT_FALSE(built->not_stored);
  EXPECT_THAT(built->attempts, Not(IsEmpty()));
  EXPECT_EQ(built->attempts.back().status, "CUDNN_STATUS_SUCCESS");
  const Opened other = open();
  for (PlanService* const service : {here_.plans.get(), other.plans.get()}) {
    const auto hit = service->fetch(plan);
    const auto found = object_of(hit);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(hit->outcome, FetchOutcome::kHit);
    EXPECT_EQ(as_text(found->file()), as_text(object->file()));
  }
  EXPECT_EQ(compiled(here_), 1U);
  EXPECT_EQ(compiled(other), 0U);
}

TEST_F(PlanServiceTest, AnObjectSaysWhatItIsAPlanOf) {
  const auto fetched = here_.plans->fetch(key(attention_problem(), h200_));
  const auto object = object_of(fetched);
  ASSERT_NE(object, nullptr);
  EXPECT_EQ(object->kind(), cache::Kind::kPlan);
  EXPECT_EQ(object->target(), "sm_90");
  const auto metadata = object->metadata().value();
  EXPECT_EQ(metadata.template_name, "cudnn_attention_fwd");
  EXPECT_EQ(metadata.arch, "9.0");
  EXPECT_THAT(metadata.toolchain, HasSubstr("cudnn-"));
  EXPECT_THAT(metadata.toolchain_build_ids, Not(IsEmpty()));
  EXPECT_THAT(metadata.entry_points, Not(IsEmpty()));
  EXPECT_THAT(object->source().value(), HasSubstr("--pass fwd --dtype bf16"));
  EXPECT_THAT(object->log().value(), HasSubstr("CUDNN_STATUS_SUCCESS"));
  const auto plan = attention::decode_plan(object->payload()).value();
  EXPECT_TRUE(check_fully(plan));
  EXPECT_EQ(bound_capability(plan).value(), (device::ComputeCapability{9, 0}));
}

TEST_F(PlanServiceTest, CudnnCompilesWithTheNvrtcOfTheService) {
  const fs::path copy = test::copy_of_real_nvrtc(temp_.path());
  if (copy.empty())
    GTEST_SKIP() << "this machine's NVRTC has no builtins beside it";
  test::change_build_id(copy);  // none that cuDNN finds by itself has that one
  here_ = open([&](Config& config) { config.nvrtc = copy; });
  const auto object = object_of(here_.plans->fetch(key(attention_problem(), h200_)));
  ASSERT_NE(object, nullptr);
  EXPECT_THAT(object->metadata()->toolchain_build_ids,
              testing::Contains(read_build_id(copy).value()));
}

TEST_F(PlanServiceTest, TwoDevicesThatAPlanCannotTellApartAreServedByOne) {
  EXPECT_NE(object_of(here_.plans->fetch(key(attention_problem(), h200_))), nullptr);
  const auto fetched =
      here_.plans->fetch(key(attention_problem(), test::published_device("h100-sxm")));
  EXPECT_NE(object_of(fetched), nullptr);
  EXPECT_EQ(fetched->outcome, FetchOutcome::kHit);
}

TEST_F(PlanServiceTest, ARefusalByTheFrontendIsItsOwnWords) {
  const auto attempts =
      expect_refused(key(backward([](Problem& each) { each.dqk = each.dv = 192; }),
                         test::published_device("a100-sxm-80gb")));
  ASSERT_EQ(attempts.size(), 1U);
  EXPECT_EQ(attempts[0].what, "frontend");
  EXPECT_EQ(attempts[0].status, "refused");
  EXPECT_THAT(attempts[0].message, HasSubstr("hidden_dim"));
}

TEST_F(PlanServiceTest, ARefusalByTheHeuristicsNamesEachThatWasAsked) {
  const auto attempts = expect_refused(
      key(backward([](Problem& each) { each.dtype = ops::DType::kF32; }), h200_));
  ASSERT_EQ(attempts.size(), 2U);
  EXPECT_EQ(attempts[0].what, "heuristics A");
  EXPECT_EQ(attempts[1].what, "heuristics fallback");
  for (const auto& each : attempts)
    EXPECT_THAT(each.status + each.message, Not(HasSubstr("SUCCESS")));
}

TEST_F(PlanServiceTest, ARefusalIsRememberedByItsServiceAlone) {
  const KeyedPlan plan =
      key(backward([](Problem& each) { each.sq = each.skv = 1; }), h200_);
  const auto attempts = expect_refused(plan);
  const Opened other = open();
  const auto again = test::value_of(other.plans->fetch(plan));
  EXPECT_EQ(again.outcome, FetchOutcome::kCompiled);
  EXPECT_EQ(again.attempts, attempts);
  const Opened without = open([](Config& config) { config.no_jit = true; });
  EXPECT_THAT(without.plans->fetch(plan), test::IsError(ErrorCode::kUnavailable));
}

TEST_F(PlanServiceTest, ARefusalAnswersEveryoneWhoWaitsForIt) {
  const KeyedPlan plan =
      key(backward([](Problem& each) { each.sq = each.skv = 1; }), h200_);
  std::vector<std::future<Result<FetchedPlan>>> all;
  for (int i = 0; i < 4; ++i)
    all.push_back(
        std::async(std::launch::async, [&] { return here_.plans->fetch(plan); }));
  for (auto& each : all) {
    const auto fetched = each.get();
    ASSERT_TRUE(fetched) << fetched.error().message;
    EXPECT_EQ(fetched->object, nullptr);
    EXPECT_THAT(to_string(fetched->attempts), HasSubstr("frontend: refused"));
  }
}

TEST_F(PlanServiceTest, WhereBuildingIsForbiddenAMissIsAnErrorAndAHitIsNone) {
  const Opened without = open([](Config& config) { config.no_jit = true; });
  const KeyedPlan plan = key(attention_problem(), h200_);
  EXPECT_THAT(without.plans->fetch(plan),
              test::IsError(ErrorCode::kUnavailable,
                            AllOf(HasSubstr("KILN_NO_JIT"), HasSubstr(plan.label))));
  EXPECT_NE(object_of(here_.plans->fetch(plan)), nullptr);
  const auto hit = without.plans->fetch(plan);
  EXPECT_NE(object_of(hit), nullptr);
  EXPECT_EQ(hit->outcome, FetchOutcome::kHit);
}

TEST_F(PlanServiceTest, APlanThatCannotBeStoredIsUsedAndItIsSaidWhy) {
  // A file where the cache's folder should be.
  const fs::path no_folder = temp_.path() / "a file";
  std::ofstream(no_folder) << "no cache";
  const Opened opened = open([&](Config& config) { config.cache_dir = no_folder; });
  const KeyedPlan plan = key(attention_problem(), h200_);
  const auto built = opened.plans->fetch(plan);
  EXPECT_NE(object_of(built), nullptr);
  EXPECT_EQ(built->outcome, FetchOutcome::kCompiled);
  ASSERT_TRUE(built->not_stored);
  EXPECT_THAT(built->not_stored->message, HasSubstr(no_folder.native()));
  const auto again = opened.plans->fetch(plan);
  EXPECT_EQ(object_of(again), built->object);
  EXPECT_EQ(again->outcome, FetchOutcome::kHit);
  EXPECT_TRUE(again->not_stored) << "it is in memory, not in the cache";
  EXPECT_EQ(compiled(opened), 1U);
}

TEST_F(PlanServiceTest, ThreadsThatAskAtOnceBuildOnce) {
  const KeyedPlan plan = key(attention_problem(), h200_);
  std::vector<std::future<Result<FetchedPlan>>> all;
  for (int i = 0; i < 4; ++i)
    all.push_back(
        std::async(std::launch::async, [&] { return here_.plans->fetch(plan); }));
  int built = 0;
  for (auto& each : all) {
    const auto fetched = each.get();
    EXPECT_NE(object_of(fetched), nullptr);
    built += fetched && fetched->outcome == FetchOutcome::kCompiled ? 1 : 0;
  }
  EXPECT_EQ(built, 1);
  EXPECT_EQ(compiled(here_), 1U);
}

TEST_F(PlanServiceTest, ServicesThatAskAtOnceBuildOnce) {
  const Opened other = open();
  const KeyedPlan plan = key(attention_problem(), h200_);
  auto theirs =
      std::async(std::launch::async, [&] { return other.plans->fetch(plan); });
  const auto ours = here_.plans->fetch(plan);
  const auto fetched = theirs.get();
  const auto a = object_of(ours);
  const auto b = object_of(fetched);
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_EQ(as_text(a->file()), as_text(b->file()));
  EXPECT_EQ((std::multiset{ours->outcome, fetched->outcome}),
            (std::multiset{FetchOutcome::kCompiled, FetchOutcome::kWaited}));
  EXPECT_EQ(compiled(here_) + compiled(other), 1U);
}

TEST_F(PlanServiceTest, AStopEndsABuildSoonAndTheNextOneSucceeds) {
  const KeyedPlan plan = key(attention_problem(), h200_);
  std::stop_source stop;
  auto fetched = std::async(std::launch::async,
                            [&] { return here_.plans->fetch(plan, stop.get_token()); });
  ASSERT_TRUE(
      test::eventually(30s, [] { return !test::children_of(::getpid()).empty(); }));
  stop.request_stop();
  const auto stopped_at = std::chrono::steady_clock::now();
  const auto stopped = fetched.get();
  EXPECT_LT(std::chrono::steady_clock::now() - stopped_at, 5s);
  EXPECT_THAT(stopped, test::IsError(ErrorCode::kCancelled));
  EXPECT_FALSE(is_stored(plan));
  EXPECT_NE(object_of(here_.plans->fetch(plan)), nullptr);
}

TEST_F(PlanServiceTest, ACudnnThatIsNotThereIsAClearError) {
  const Opened opened =
      open([](Config& config) { config.cudnn = "/nowhere/libcudnn.so.9"; });
  EXPECT_THAT(opened.plans->key(attention_problem(), h200_),
              test::IsError(
                  ErrorCode::kUnavailable,
                  AllOf(HasSubstr("KILN_CUDNN"), HasSubstr("/nowhere/libcudnn.so.9"))));
}

TEST_F(PlanServiceTest, ACudnnThatEndsProcessesEndsAWorkerAlone) {
  const auto asked = here_.plans->ask_library().value();
  const auto broken = test::incomplete_cudnn(temp_.path() / "broken", asked->path,
                                             test::CudnnPart::kEmpty);
  compile::WorkerPool pool(plan_workers());
  compile::CudnnRequest request{.cudnn = broken};
  EXPECT_THAT(
      pool.describe(request),
      test::IsError(
          ErrorCode::kWorkerCrashed,
          AllOf(HasSubstr("cuDNN " + broken.native() + " cannot be used: "),
                HasSubstr("Could not load symbol cudnnGetVersion"),
                HasSubstr("install all libraries of one cuDNN in one folder"))));
  // A process that has loaded the part, as torch does, can use it.
  request.loaded = {asked->is.graph.path};
  EXPECT_EQ(pool.describe(request).value().graph, asked->is.graph);
  const Opened opened = open([&](Config& config) { config.cudnn = broken; });
  const auto library = here_.plans->library();
  ASSERT_TRUE(library) << library.error().message;
  EXPECT_TRUE(opened.plans->library()) << "it is loaded here now";
}

TEST_F(PlanServiceTest, ACudnnThatCannotBeUsedIsAskedAboutOnce) {
  const auto file = temp_.path() / "libcudnn.so.9";
  fs::copy_file(test::paths::kNoDeviceDriver, file);
  const Opened opened = open([&](Config& config) { config.cudnn = file; });
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(
        opened.plans->key(attention_problem(), h200_),
        test::IsError(ErrorCode::kUnavailable,
                      HasSubstr("cuDNN " + file.native() + " cannot be used: ")));
    fs::copy_file(here_.plans->ask_library().value()->path, file,
                  fs::copy_options::overwrite_existing);
  }
}

TEST_F(PlanServiceTest, AWorkerSaysWhatACudnnIsAndWhatItLacks) {
  const auto asked = here_.plans->ask_library();
  ASSERT_TRUE(asked && *asked) << asked.error().message;
  const auto& [path, is] = **asked;
  EXPECT_EQ(is.cudnn.path, path);
  EXPECT_THAT(is.graph.path.filename().native(), HasSubstr("libcudnn_graph.so.9"));
  const auto library = test::value_of(here_.plans->library());
  EXPECT_EQ(to_string(library.version()), is.version);

  compile::WorkerPool pool(plan_workers());
  compile::CudnnRequest request{.cudnn = path, .functions = {"cudnnCreate"}};
  EXPECT_EQ(pool.describe(request).value(), is);
  request.functions.emplace_back("cudnnOfTomorrow");
  EXPECT_THAT(pool.describe(request).error().message,
              AllOf(HasSubstr(is.graph.path.native() + " has no cudnnOfTomorrow"),
                    HasSubstr("look at LD_LIBRARY_PATH")));
}

TEST_F(PlanServiceTest, WithoutAPlanWorkerNoCudnnIsCalled) {
  const Opened opened =
      open([](Config& config) { config.worker = "/nowhere/kiln-worker"; });
  EXPECT_THAT(
      opened.plans->library(),
      test::IsError(ErrorCode::kUnavailable, HasSubstr("/nowhere/kiln-plan-worker")));
}

}  // namespace
}  // namespace kiln
