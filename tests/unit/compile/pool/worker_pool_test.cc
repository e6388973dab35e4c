// What a pool makes of what its workers say; the workers are scripts.

#include "compile/pool/worker_pool.h"

#include <chrono>
#include <stop_token>
#include <thread>

#include "tests/support/processes.h"
#include "tests/support/test.h"
#include "tests/unit/compile/pool/scripted_worker.h"

namespace kiln::compile {
namespace {

class WorkerPoolTest : public testing::Test {
 protected:
  PoolOptions worker_that(std::string_view text) {
    PoolOptions options;
    options.max_workers = 1;
    options.worker.path =
        scripts_.script(scripts_.leave_a_trace() + scripts_.say_hello() +
                        std::string(text) + std::string(ScriptedWorker::kStay));
    return options;
  }
  PoolOptions worker_that_answers(const Reply& reply) {
    return worker_that(scripts_.send(reply));
  }

  ScriptedWorker scripts_;
  const CompileJob job_{.label = "scale",
                        .source = "source",
                        .target = {{{9, 0}}, device::ImageKind::kPtx}};
};

CompileOutput sound_output() {
  constexpr std::string_view kText =
      ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n}\n";
  CompileOutput output;
  output.image.assign(as_bytes(kText).begin(), as_bytes(kText).end());
  return output;
}

Error error_in(const auto& result) {
  return result ? Error{ErrorCode::kNotFound, "there was none"} : result.error();
}

TEST_F(WorkerPoolTest, TellsThePhasesAsTheyBegin) {
  WorkerPool pool(worker_that(scripts_.send(Progress{BuildPhase::kOpening}) +
                              scripts_.send(Progress{BuildPhase::kCompiling}) +
                              scripts_.send(sound_output())));
  std::vector<BuildPhase> phases;
  const auto output =
      pool.compile(job_, {}, [&](BuildPhase phase) { phases.push_back(phase); });
  ASSERT_TRUE(output) << output.error().message;
  EXPECT_EQ(*output, sound_output());
  EXPECT_THAT(phases, ElementsAre(BuildPhase::kQueued, BuildPhase::kStarting,
                                  BuildPhase::kOpening, BuildPhase::kCompiling));
}

TEST_F(WorkerPoolTest, BelievesNoImageThatIsNotTheJobs) {
  CompileJob other = job_;
  other.target.architecture.capability = {8, 0};
  WorkerPool pool(worker_that_answers(sound_output()));
  const Error error = error_in(pool.compile(other, {}));
  EXPECT_EQ(error.code, ErrorCode::kCompileFailed);
  EXPECT_THAT(error.message, StartsWith("the build of scale for compute_80: "));
}

TEST_F(WorkerPoolTest, NamesTheBuildInWhatItsWorkerSays) {
  WorkerPool pool(worker_that_answers(Error{ErrorCode::kCompileFailed, "the log"}));
  const Error error = error_in(pool.compile(job_, {}));
  EXPECT_EQ(error.code, ErrorCode::kCompileFailed);
  EXPECT_EQ(error.message, "the build of scale for compute_90: the log");
}

TEST_F(WorkerPoolTest, TakesNoAnswerToAnotherQuestion) {
  WorkerPool describing(worker_that_answers(ToolchainDescription{}));
  const Error build = error_in(describing.compile(job_, {}));
  EXPECT_EQ(build.code, ErrorCode::kWorkerCrashed);
  EXPECT_THAT(build.message, HasSubstr("answered another question"));
  const Error plan = error_in(describing.build_plan({.label = "p"}, {}));
  EXPECT_EQ(plan.code, ErrorCode::kWorkerCrashed);

  WorkerPool compiling(worker_that_answers(sound_output()));
  const Error description = error_in(compiling.describe({"/x/libnvrtc.so", ""}));
  EXPECT_EQ(description.code, ErrorCode::kWorkerCrashed);
  EXPECT_EQ(description.message,
            "asking NVRTC /x/libnvrtc.so for its version: the worker answered another "
            "question");
}

TEST_F(WorkerPoolTest, DescribesAnNvrtcBesideTheLastBuildThatItMayRun) {
  std::stop_source stop;
  WorkerPool pool(worker_that(""));  // a worker that never answers
  std::jthread build([&] { std::ignore = pool.compile(job_, stop.get_token()); });
  std::jthread question(
      [&] { std::ignore = pool.describe(NvrtcPaths{}, stop.get_token()); });
  EXPECT_TRUE(test::eventually(std::chrono::seconds(3),
                               [&] { return scripts_.traces_left() == 2; }));
  stop.request_stop();
}

TEST_F(WorkerPoolTest, StartsNobodyForAJobThatKilledTwo) {
  PoolOptions options = worker_that("exit 9\n");
  int refused = 0;
  options.on_refused = [&] { ++refused; };
  options.clock = [] { return std::chrono::steady_clock::time_point{}; };
  WorkerPool pool(options);
  EXPECT_EQ(error_in(pool.compile(job_, {})).code, ErrorCode::kWorkerCrashed);
  const Error last = error_in(pool.compile(job_, {}));
  EXPECT_THAT(last.message, HasSubstr("exited with status 9"));
  EXPECT_EQ(error_in(pool.compile(job_, {})).message, last.message);
  EXPECT_EQ(scripts_.traces_left(), 2);
  EXPECT_EQ(refused, 1);
}

TEST_F(WorkerPoolTest, AWorkersOwnTimeoutIsAKillAndCostsNoWorker) {
  const std::string answer = scripts_.send(Error{ErrorCode::kTimeout, ""});
  PoolOptions options = worker_that(answer + answer + answer);
  int refused = 0;
  options.on_refused = [&] { ++refused; };
  WorkerPool pool(options);
  CompileJob hurried = job_;
  hurried.time_limit = std::chrono::seconds(90);
  for (int i = 0; i < 3; ++i) {
    const Error error = error_in(pool.compile(hurried, {}));
    EXPECT_EQ(error.code, ErrorCode::kTimeout);
    EXPECT_THAT(error.message, HasSubstr("over its limit of 90.0 s"));
  }
  EXPECT_EQ(scripts_.traces_left(), 1);
  EXPECT_EQ(refused, 1) << "the third time";
}

TEST_F(WorkerPoolTest, ABuildNeedsASlotAndAQuestionNone) {
  ToolchainDescription toolchain;
  toolchain.major = 13;
  PoolOptions options = worker_that_answers(toolchain);
  options.acquire_slot = [](const std::stop_token&) -> Result<std::shared_ptr<void>> {
    return fail(ErrorCode::kUnavailable, "no slot");
  };
  WorkerPool pool(options);
  EXPECT_EQ(error_in(pool.compile(job_, {})).message, "no slot");
  EXPECT_EQ(scripts_.traces_left(), 0);
  const auto described = pool.describe({"/x/libnvrtc.so", ""});
  ASSERT_TRUE(described) << described.error().message;
  EXPECT_EQ(described->major, 13);
}

TEST_F(WorkerPoolTest, OptionsWinOverTheEnvironmentThatAWorkerGets) {
  const auto seen = scripts_.folder() / "seen";
  PoolOptions options =
      worker_that("tr '\\0' '\\n' </proc/$$/environ >" + seen.native() + '\n' +
                  scripts_.send(ToolchainDescription{}));
  options.environment = {"TMPDIR=/first", "KILN_A=a", "TMPDIR=/last"};
  WorkerPool pool(options);
  ASSERT_TRUE(pool.describe(NvrtcPaths{}));
  std::vector<std::string> settings;
  std::ifstream list(seen);
  for (std::string line; std::getline(list, line);) {
    if (line.starts_with("TMPDIR=") || line.starts_with("KILN_A="))
      settings.push_back(line);
  }
  EXPECT_THAT(settings, testing::UnorderedElementsAre("TMPDIR=/last", "KILN_A=a"));
}

}  // namespace
}  // namespace kiln::compile
