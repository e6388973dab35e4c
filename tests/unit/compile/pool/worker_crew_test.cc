// Who is hired, kept and let go, and what is said of an impostor.

#include "compile/pool/worker_crew.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <future>

#include "tests/support/processes.h"
#include "tests/unit/compile/pool/scripted_worker.h"

namespace kiln::compile {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Libraries = WorkerCrew::Libraries;

class WorkerCrewTest : public testing::Test {
 protected:
  WorkerCrew crew_of(unsigned max_workers) {
    return crew_of(max_workers,
                   scripts_.say_hello() + std::string(ScriptedWorker::kStay));
  }
  WorkerCrew crew_of(unsigned max_workers, std::string_view text) {
    return {max_workers,
            {.name = "worker", .option = scripts_.script(text), .environment = {}},
            {}};
  }

  Result<WorkerProcess> hire(WorkerCrew& crew, const Libraries& libraries) {
    phases_.clear();
    BuildWatch watch([this](BuildPhase phase) { phases_.push_back(phase); });
    return crew.hire(libraries, {}, watch);
  }
  /// Of a crew that has nobody who is fit.
  Error refusal(std::string_view text) {
    WorkerCrew crew = crew_of(1, text);
    const auto place = crew.take_place({});
    const auto worker = hire(crew, {"/a"});
    return worker ? Error{ErrorCode::kNotFound, "it was hired"} : worker.error();
  }
  /// Hires and keeps one; its process id.
  pid_t keep_one(WorkerCrew& crew, const Libraries& libraries) {
    WorkerProcess worker = hire(crew, libraries).value();
    const pid_t pid = worker.pid();
    crew.keep(libraries, std::move(worker));
    return pid;
  }

  ScriptedWorker scripts_;
  std::vector<BuildPhase> phases_;
};

TEST_F(WorkerCrewTest, OneThatWasKeptIsHiredAgainForTheSameLibraries) {
  WorkerCrew crew = crew_of(1);
  const auto place = crew.take_place({});
  const pid_t first = keep_one(crew, {"/a", "/b"});
  EXPECT_THAT(phases_, ElementsAre(BuildPhase::kStarting));
  EXPECT_EQ(hire(crew, {"/a", "/b"}).value().pid(), first);
  EXPECT_THAT(phases_, IsEmpty()) << "nothing was started";
}

TEST_F(WorkerCrewTest, TheOneThatWasKeptLastIsHiredFirst) {
  WorkerCrew crew = crew_of(2);
  const auto place = crew.take_place({});
  const auto other = crew.take_place({});
  WorkerProcess first = hire(crew, {"/a"}).value();
  WorkerProcess second = hire(crew, {"/a"}).value();
  const pid_t last = second.pid();
  crew.keep({"/a"}, std::move(first));
  crew.keep({"/a"}, std::move(second));
  EXPECT_EQ(hire(crew, {"/a"}).value().pid(), last);
}

TEST_F(WorkerCrewTest, OneWithOtherLibrariesMakesRoomWhereThereIsNone) {
  WorkerCrew crew = crew_of(1);
  const auto place = crew.take_place({});
  const pid_t first = keep_one(crew, {"/a", "/b"});
  const auto worker = hire(crew, {"/b", "/a"}).value();
  EXPECT_NE(worker.pid(), first);
  EXPECT_FALSE(test::is_running(first));
}

TEST_F(WorkerCrewTest, OneWithOtherLibrariesStaysWhereThereIsRoom) {
  WorkerCrew crew = crew_of(2);
  const auto place = crew.take_place({});
  const pid_t first = keep_one(crew, {"/a"});
  const auto worker = hire(crew, {"/b"}).value();
  EXPECT_TRUE(test::is_running(first));
  EXPECT_EQ(hire(crew, {"/a"}).value().pid(), first);
}

TEST_F(WorkerCrewTest, OneThatEndedWhileItWasIdleIsNotHired) {
  WorkerCrew crew = crew_of(1);
  const auto place = crew.take_place({});
  const pid_t first = keep_one(crew, {"/a"});
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(first), &info, WEXITED | WNOWAIT), 0);
  const auto worker = hire(crew, {"/a"}).value();
  EXPECT_NE(worker.pid(), first);
  EXPECT_TRUE(worker.alive());
}

TEST_F(WorkerCrewTest, AStopEndsTheWaitForAPlace) {
  WorkerCrew crew = crew_of(1);
  auto place = crew.take_place({}).value();
  std::stop_source source;
  auto waiting = std::async(std::launch::async,
                            [&] { return crew.take_place(source.get_token()); });
  source.request_stop();
  const auto taken = waiting.get();
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(taken.error().message, "cancelled while queued for a compile worker");
  // A stop that came first takes no place, though there is one.
  place.reset();
  EXPECT_FALSE(crew.take_place(source.get_token()));
  EXPECT_TRUE(crew.take_place({}));
}

TEST_F(WorkerCrewTest, APlaceThatIsGivenBackIsTheNextOnes) {
  WorkerCrew crew = crew_of(1);
  auto place = crew.take_place({}).value();
  std::stop_source give_up;
  auto waiting = std::async(std::launch::async, [&] {
    return crew.take_place(give_up.get_token()).has_value();
  });
  place.reset();
  if (waiting.wait_for(std::chrono::seconds(20)) != std::future_status::ready)
    give_up.request_stop();
  EXPECT_TRUE(waiting.get());
}

TEST_F(WorkerCrewTest, AStopEndsAStart) {
  WorkerCrew crew = crew_of(1, ScriptedWorker::kStay);  // it never says hello
  std::stop_source source;
  source.request_stop();
  BuildWatch watch({});
  const auto worker = crew.hire({"/a"}, source.get_token(), watch);
  ASSERT_FALSE(worker);
  EXPECT_EQ(worker.error().code, ErrorCode::kCancelled);
}

TEST_F(WorkerCrewTest, OneOfAnotherBuildIsRefusedNamingBoth) {
  for (const Reply& greeting :
       {Reply(Hello{"another"}), Reply(Progress{BuildPhase::kOpening})}) {
    const Error error =
        refusal(scripts_.send(greeting) + std::string(ScriptedWorker::kStay));
    EXPECT_EQ(error.code, ErrorCode::kUnavailable);
    EXPECT_THAT(error.message, AllOf(HasSubstr("/worker-"), HasSubstr("come from"),
                                     HasSubstr(this_library().native())));
  }
}

TEST_F(WorkerCrewTest, OneThatEndsBeforeItsHelloIsQuoted) {
  const Error error = refusal("echo 'no such symbol'; exit 127\n");
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("did not start as a compile worker"),
                    HasSubstr("exited with status 127; it wrote: no such symbol")));
}

}  // namespace
}  // namespace kiln::compile
