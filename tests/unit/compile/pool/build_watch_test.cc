// What the caller of a build hears while it runs, and of one that was ended.

#include "compile/pool/build_watch.h"

#include <chrono>
#include <fstream>
#include <thread>

#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::compile {
namespace {

const CompileJob kBuild{.label = "scale",
                        .target = {{{9, 0}, device::ArchSuffix::kA}},
                        .time_limit = std::chrono::milliseconds(1500),
                        .memory_limit_bytes = 3ULL << 30U};
const PlanJob kPlan{.label = "attention",
                    .capability = {8, 6},
                    .time_limit = std::chrono::seconds(20),
                    .memory_limit_bytes = 3ULL << 30U};

class BuildWatchTest : public testing::Test {
 protected:
  BuildWatchTest() { watch_.enter(BuildPhase::kCompiling); }

  template <typename Job>
  [[nodiscard]] std::string told(const Job& job, ErrorCode code,
                                 const std::string& why = "") const {
    return ended_build({code, why}, job, watch_, {}).message;
  }

  BuildWatch watch_{{}};
};

TEST(BuildName, IsTheLabelOrTheProgramAndTheArchitecture) {
  EXPECT_EQ(build_name(kBuild), "the build of scale for sm_90a");
  EXPECT_EQ(build_name(kPlan), "the plan of attention for 8.6");
  CompileJob nameless = kBuild;
  nameless.label.clear();
  nameless.target.kind = device::ImageKind::kPtx;
  EXPECT_THAT(build_name(nameless), testing::StartsWith("the build of kernel.cu for "));
}

TEST_F(BuildWatchTest, EveryPhaseIsToldOnceAndInOrder) {
  std::vector<BuildPhase> told;
  BuildWatch watch([&](BuildPhase phase) { told.push_back(phase); });
  EXPECT_EQ(watch.phase(), BuildPhase::kQueued);
  watch.enter(BuildPhase::kOpening);
  watch.enter(BuildPhase::kReading);
  EXPECT_EQ(watch.phase(), BuildPhase::kReading);
  EXPECT_THAT(told, ElementsAre(BuildPhase::kOpening, BuildPhase::kReading));
}

TEST_F(BuildWatchTest, QueueingIsNotOnTheClock) {
  const auto queued = watch_.begin();
  while (BuildWatch::Clock::now() <= queued) {
  }
  watch_.start_clock();
  EXPECT_GT(watch_.begin(), queued);
}

TEST_F(BuildWatchTest, ATimeoutNamesPhaseLimitAndRemedy) {
  EXPECT_THAT(told(kBuild, ErrorCode::kTimeout),
              MatchesRegex("the build of scale for sm_90a was stopped after "
                           "[0-9]+\\.[0-9] s while compiling: over its limit of 1.5 s; "
                           "raise the limit \\(KILN_COMPILE_TIMEOUT\\) or simplify the "
                           "source"));
  EXPECT_THAT(
      told(kPlan, ErrorCode::kTimeout),
      EndsWith("over its limit of 20.0 s; raise the limit (KILN_COMPILE_TIMEOUT)"));
}

TEST_F(BuildWatchTest, ATimeoutSaysWhichShareOfACoreTheBuildHad) {
  watch_.start_clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  watch_.had(std::chrono::milliseconds(10));
  EXPECT_THAT(told(kBuild, ErrorCode::kTimeout),
              MatchesRegex(".* 1.5 s, in which the worker had [12]?[0-9] % of a core, "
                           "so run fewer builds at a time \\(KILN_JOBS\\); raise .*"));
  watch_.had(BuildWatch::Clock::now() - watch_.begin());
  EXPECT_THAT(
      told(kBuild, ErrorCode::kTimeout),
      MatchesRegex(".* 1.5 s, in which the worker had (100|99) % of a core; raise .*"));
}

TEST_F(BuildWatchTest, ATimeoutOfABuildThatDidNotRunBlamesNoOtherBuild) {
  watch_.start_clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  watch_.had(std::chrono::milliseconds(0));
  EXPECT_THAT(told(kBuild, ErrorCode::kTimeout),
              AllOf(HasSubstr("in which the worker used no core: somebody stopped it, "
                              "or it waits for a file; raise"),
                    Not(HasSubstr("KILN_JOBS"))));
}

TEST_F(BuildWatchTest, WantOfMemoryNamesTheLimitInItsUnit) {
  EXPECT_THAT(
      told(kBuild, ErrorCode::kResourceLimit),
      EndsWith("over its memory limit of 3.0 GiB; raise the limit (KILN_WORKER_MEMORY) "
               "or simplify the source"));
  EXPECT_THAT(
      told(kPlan, ErrorCode::kResourceLimit),
      EndsWith(
          "over its memory limit of 3.0 GiB; raise the limit (KILN_WORKER_MEMORY)"));
}

TEST_F(BuildWatchTest, AnythingElseThatEndedAWorkerIsACrashAndItsCause) {
  for (const ErrorCode code : {ErrorCode::kWorkerCrashed, ErrorCode::kCorrupt}) {
    const Error error = ended_build({code, "the cause"}, kBuild, watch_, {});
    EXPECT_EQ(error.code, ErrorCode::kWorkerCrashed);
    EXPECT_THAT(error.message,
                MatchesRegex("the build of scale for sm_90a failed after "
                             "[0-9]+\\.[0-9] s while compiling: the cause"));
  }
}

TEST_F(BuildWatchTest, WhatWasCancelledIsNotSaved) {
  const test::TempDir root;
  const Error error =
      ended_build({ErrorCode::kCancelled, ""}, kBuild, watch_, root.path() / "repro");
  EXPECT_EQ(error.code, ErrorCode::kCancelled);
  EXPECT_EQ(error.message,
            "the build of scale for sm_90a was cancelled while compiling");
  EXPECT_THAT(root.files(), testing::IsEmpty());
}

TEST_F(BuildWatchTest, TheMessageSaysWhereTheBuildWasSaved) {
  const test::TempDir root;
  const Error error =
      ended_build({ErrorCode::kTimeout, ""}, kBuild, watch_, root.path() / "repro");
  const auto at = error.message.rfind("; saved in ");
  ASSERT_NE(at, std::string::npos) << error.message;
  const std::filesystem::path saved = error.message.substr(at + 11);
  EXPECT_EQ(saved.parent_path(), root.path() / "repro");
  EXPECT_TRUE(std::filesystem::exists(saved / "command"));
}

TEST_F(BuildWatchTest, ABuildThatCannotBeSavedKeepsItsError) {
  const test::TempDir root;
  std::ofstream(root.path() / "repro") << "a file";
  const Error error =
      ended_build({ErrorCode::kTimeout, ""}, kPlan, watch_, root.path() / "repro");
  EXPECT_EQ(error.code, ErrorCode::kTimeout);
  EXPECT_THAT(
      error.message,
      testing::HasSubstr(
          "; raise the limit (KILN_COMPILE_TIMEOUT); the build could not be saved: "));
}

}  // namespace
}  // namespace kiln::compile
