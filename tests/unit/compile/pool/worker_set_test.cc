// Which worker is acquired, which are kept and ended, and what is said of an impostor.

#include "compile/pool/worker_set.h"

#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <future>
#include <thread>
#include <vector>

#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"
#include "tests/unit/compile/pool/scripted_worker.h"
#include "util/this_library.h"

namespace kiln::compile {
namespace {

using Libraries = WorkerSet::Libraries;

constexpr std::chrono::milliseconds kAMoment{50};

class WorkerSetTest : public testing::Test {
 protected:
  WorkerSet workers_of(unsigned max_workers) {
    return workers_of(max_workers,
                      scripts_.say_hello() + std::string(ScriptedWorker::kStay));
  }
  WorkerSet workers_of(unsigned max_workers, std::string_view text) {
    return {max_workers, {.name = "worker", .path = scripts_.script(text)}, {}};
  }

  Result<WorkerProcess> acquire(WorkerSet& workers, const Libraries& libraries) {
    phases_.clear();
    BuildWatch watch([this](BuildPhase phase) { phases_.push_back(phase); });
    return workers.acquire(libraries, {}, watch);
  }
  /// Of a workers that has nobody who is fit.
  Error refusal(std::string_view text) {
    WorkerSet workers = workers_of(1, text);
    const auto permit = workers.acquire_permit({});
    const auto worker = acquire(workers, {"/a"});
    return worker ? Error{ErrorCode::kNotFound, "it was hired"} : worker.error();
  }
  /// Hires and keeps one; its process id.
  pid_t keep_one(WorkerSet& workers, const Libraries& libraries) {
    WorkerProcess worker = acquire(workers, libraries).value();
    const pid_t pid = worker.pid();
    workers.release(libraries, std::move(worker));
    return pid;
  }

  ScriptedWorker scripts_;
  std::vector<BuildPhase> phases_;
};

TEST_F(WorkerSetTest, OneThatWasKeptIsHiredAgainForTheSameLibraries) {
  WorkerSet workers = workers_of(1);
  const auto permit = workers.acquire_permit({});
  const pid_t first = keep_one(workers, {"/a", "/b"});
  EXPECT_THAT(phases_, ElementsAre(BuildPhase::kStarting));
  EXPECT_EQ(acquire(workers, {"/a", "/b"}).value().pid(), first);
  EXPECT_THAT(phases_, IsEmpty()) << "nothing was started";
}

TEST_F(WorkerSetTest, TheOneThatWasKeptLastIsHiredFirst) {
  WorkerSet workers = workers_of(2);
  const auto permit = workers.acquire_permit({});
  const auto other = workers.acquire_permit({});
  WorkerProcess first = acquire(workers, {"/a"}).value();
  WorkerProcess second = acquire(workers, {"/a"}).value();
  const pid_t last = second.pid();
  workers.release({"/a"}, std::move(first));
  workers.release({"/a"}, std::move(second));
  EXPECT_EQ(acquire(workers, {"/a"}).value().pid(), last);
}

TEST_F(WorkerSetTest, OneWithOtherLibrariesMakesRoomWhereThereIsNone) {
  WorkerSet workers = workers_of(1);
  const auto permit = workers.acquire_permit({});
  const pid_t first = keep_one(workers, {"/a", "/b"});
  const auto worker = acquire(workers, {"/b", "/a"}).value();
  EXPECT_NE(worker.pid(), first);
  EXPECT_FALSE(test::is_running(first));
}

TEST_F(WorkerSetTest, OneWithOtherLibrariesStaysWhereThereIsRoom) {
  WorkerSet workers = workers_of(2);
  const auto permit = workers.acquire_permit({});
  const pid_t first = keep_one(workers, {"/a"});
  const auto worker = acquire(workers, {"/b"}).value();
  EXPECT_TRUE(test::is_running(first));
  EXPECT_EQ(acquire(workers, {"/a"}).value().pid(), first);
}

TEST_F(WorkerSetTest, OneThatEndedWhileItWasIdleIsNotHired) {
  WorkerSet workers = workers_of(1);
  const auto permit = workers.acquire_permit({});
  const pid_t first = keep_one(workers, {"/a"});
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(first), &info, WEXITED | WNOWAIT), 0);
  const auto worker = acquire(workers, {"/a"}).value();
  EXPECT_NE(worker.pid(), first);
  EXPECT_TRUE(worker.alive());
}

TEST_F(WorkerSetTest, GivesPermitsInTheOrderOfAsking) {
  WorkerSet workers = workers_of(1);
  auto permit = workers.acquire_permit({}).value();
  std::vector<int> order;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      const auto mine = workers.acquire_permit({});
      order.push_back(i);  // one permit: one at a time
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  permit.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector{0, 1, 2, 3, 4, 5}));
}

TEST_F(WorkerSetTest, OnlyAsManyPermitsAreTakenAsThereIsRoomForNow) {
  std::atomic<unsigned> room = 1;
  WorkerSet workers(LazyCount(4).bounded_by([&room] { return room.load(); }), {}, {});
  auto first = workers.acquire_permit({});
  std::stop_source give_up;
  const auto next = [&] {
    return std::async(std::launch::async, [&] {
      return workers.acquire_permit(give_up.get_token()).has_value();
    });
  };
  auto waiting = next();
  EXPECT_EQ(waiting.wait_for(kAMoment), std::future_status::timeout);
  give_up.request_stop();
  EXPECT_FALSE(waiting.get());
  give_up = {};
  room = 2;
  EXPECT_TRUE(next().get());
  room = 0;
  first->reset();
  EXPECT_TRUE(next().get()) << "one is always possible";
}

TEST_F(WorkerSetTest, WhoeverIsAloneWaitsForTheOthersAndNobodyBeginsMeanwhile) {
  WorkerSet workers = workers_of(3);
  const auto mine = workers.acquire_permit({});
  auto other = workers.acquire_permit({}).value();
  auto waiting = std::async(std::launch::async, [&] { return workers.be_alone({}); });
  EXPECT_EQ(waiting.wait_for(kAMoment), std::future_status::timeout);
  auto later =
      std::async(std::launch::async, [&] { return workers.acquire_permit({}); });
  EXPECT_EQ(later.wait_for(kAMoment), std::future_status::timeout);
  other.reset();
  auto alone = waiting.get();
  ASSERT_TRUE(alone);
  EXPECT_EQ(later.wait_for(kAMoment), std::future_status::timeout);
  alone->reset();
  EXPECT_TRUE(later.get());
}

TEST_F(WorkerSetTest, SeveralWhoWantToBeAloneAreSoOneAfterAnother) {
  WorkerSet workers = workers_of(3);
  std::atomic<int> now = 0;
  test::in_threads(3, [&] {
    const auto permit = workers.acquire_permit({});
    const auto alone = workers.be_alone({});
    EXPECT_EQ(++now, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    --now;
  });
}

TEST_F(WorkerSetTest, AStopEndsTheWaitToBeAlone) {
  WorkerSet workers = workers_of(2);
  const auto mine = workers.acquire_permit({});
  const auto other = workers.acquire_permit({});
  std::stop_source source;
  auto waiting = std::async(std::launch::async,
                            [&] { return workers.be_alone(source.get_token()); });
  source.request_stop();
  EXPECT_EQ(waiting.get().error().code, ErrorCode::kCancelled);
}

TEST_F(WorkerSetTest, AStopEndsTheWaitForAPlace) {
  WorkerSet workers = workers_of(1);
  auto permit = workers.acquire_permit({}).value();
  std::stop_source source;
  auto waiting = std::async(std::launch::async,
                            [&] { return workers.acquire_permit(source.get_token()); });
  source.request_stop();
  EXPECT_THAT(waiting.get(),
              test::IsError(ErrorCode::kCancelled,
                            "cancelled while queued for a compile worker"));
  // A stop that came first takes no permit, though there is one.
  permit.reset();
  EXPECT_FALSE(workers.acquire_permit(source.get_token()));
  EXPECT_TRUE(workers.acquire_permit({}));
}

TEST_F(WorkerSetTest, APlaceThatIsGivenBackIsTheNextOnes) {
  WorkerSet workers = workers_of(1);
  auto permit = workers.acquire_permit({}).value();
  std::stop_source give_up;
  auto waiting = std::async(std::launch::async, [&] {
    return workers.acquire_permit(give_up.get_token()).has_value();
  });
  permit.reset();
  if (waiting.wait_for(std::chrono::seconds(20)) != std::future_status::ready)
    give_up.request_stop();
  EXPECT_TRUE(waiting.get());
}

TEST_F(WorkerSetTest, AStopEndsAStart) {
  WorkerSet workers = workers_of(1, ScriptedWorker::kStay);  // it never says hello
  std::stop_source source;
  source.request_stop();
  BuildWatch watch({});
  EXPECT_THAT(workers.acquire({"/a"}, source.get_token(), watch),
              test::IsError(ErrorCode::kCancelled));
}

TEST_F(WorkerSetTest, OneOfAnotherBuildIsRefusedNamingBoth) {
  for (const Reply& greeting :
       {Reply(Hello{"another"}), Reply(Progress{BuildPhase::kOpening})}) {
    const Error error =
        refusal(scripts_.send(greeting) + std::string(ScriptedWorker::kStay));
    EXPECT_EQ(error.code, ErrorCode::kUnavailable);
    EXPECT_THAT(error.message, AllOf(HasSubstr("/worker-"), HasSubstr("come from"),
                                     HasSubstr(this_library().native())));
  }
}

TEST_F(WorkerSetTest, OneThatEndsBeforeItsHelloIsQuoted) {
  const Error error = refusal("echo 'no such symbol'; exit 127\n");
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("did not start as a compile worker"),
                    HasSubstr("exited with status 127; it wrote: no such symbol")));
  EXPECT_FALSE(error.from_outside);
}

TEST_F(WorkerSetTest, OneThatIsKilledBeforeItsHelloWasEndedFromOutside) {
  const Error error = refusal("kill -9 $$\n");
  EXPECT_EQ(error.code, ErrorCode::kWorkerCrashed);
  EXPECT_TRUE(error.from_outside);
  EXPECT_THAT(error.message, AllOf(HasSubstr("did not start as a compile worker"),
                                   HasSubstr("was killed by signal 9")));
}

}  // namespace
}  // namespace kiln::compile
