// One worker, started, listened to and ended: what its owner is told of each end.

#include "compile/pool/worker_process.h"

#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <string>

#include "tests/support/is_error.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"
#include "tests/unit/compile/pool/scripted_worker.h"

namespace kiln::compile {
namespace {

ExchangeLimits patience() {
  return {.deadline = std::chrono::steady_clock::now() + 20s,
          .memory_bytes = 0,
          .stop = {}};
}

class WorkerProcessTest : public testing::Test {
 protected:
  WorkerProcess start(std::string_view text) {
    return WorkerProcess::start({scripts_.script(text), {}}).value();
  }

  /// What the owner is told of a worker that ends before it says anything.
  std::string end_of(std::string_view text) {
    WorkerProcess worker = start(text);
    const auto reply = worker.receive(patience());
    if (reply)
      return "it said something";
    EXPECT_EQ(reply.error().code, ErrorCode::kWorkerCrashed);
    EXPECT_FALSE(worker.alive());
    return reply.error().message;
  }

  ScriptedWorker scripts_;
};

/// Returns when the worker has ended, which it stays to be asked about.
void wait_for_the_end_of(const WorkerProcess& worker) {
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(worker.pid()), &info, WEXITED | WNOWAIT),
            0);
}

TEST_F(WorkerProcessTest, AWorkerThatEndsItselfOverALimitIsOverThatLimit) {
  const auto code_of = [&](int status) {
    WorkerProcess worker = start("exit " + std::to_string(status));
    return worker.receive(patience()).error().code;
  };
  EXPECT_EQ(code_of(kExitOverTime), ErrorCode::kTimeout);
  EXPECT_EQ(code_of(kExitOverMemory), ErrorCode::kResourceLimit);
}

TEST_F(WorkerProcessTest, AProgramThatIsNotThereIsNamed) {
  EXPECT_THAT(
      WorkerProcess::start({scripts_.folder() / "missing", {}}),
      test::IsError(ErrorCode::kUnavailable,
                    EndsWith("/missing: posix_spawn: No such file or directory")));
}

TEST_F(WorkerProcessTest, ItsExitStatusAndLastWordsAreTold) {
  EXPECT_THAT(end_of("echo 'no such symbol' >&2; exit 3\n"),
              EndsWith(", exited with status 3; it wrote: no such symbol"));
  EXPECT_THAT(end_of("exit 0\n"), EndsWith(", exited with status 0"));
}

TEST_F(WorkerProcessTest, BlanksAndNulsBehindItsLastWordsAreCutOff) {
  EXPECT_THAT(end_of("printf 'bad  news \\n\\000 \\n\\n'; exit 3\n"),
              EndsWith("it wrote: bad  news"));
  EXPECT_THAT(end_of("printf ' \\n\\000'; exit 3\n"), EndsWith("with status 3"));
}

TEST_F(WorkerProcessTest, OfManyWordsTheEndIsTold) {
  EXPECT_THAT(end_of("head -c 5000 /dev/zero | tr '\\0' a; printf 'the end'; exit 3\n"),
              EndsWith("it wrote: " + std::string(2048 - 7, 'a') + "the end"));
}

TEST_F(WorkerProcessTest, WhatItWritesBeyondItsBufferIsLost) {
  EXPECT_THAT(end_of("head -c 65536 /dev/zero | tr '\\0' a; echo lost; exit 3\n"),
              EndsWith("it wrote: " + std::string(2048, 'a')));
}

TEST_F(WorkerProcessTest, TheSignalThatEndedItIsNamed) {
  EXPECT_THAT(end_of("kill -TERM $$\n"),
              EndsWith(", was killed by signal 15 (Terminated)"));
  EXPECT_THAT(
      end_of("kill -KILL $$\n"),
      EndsWith(", was killed by signal 9 (Killed), perhaps for want of memory"));
}

TEST_F(WorkerProcessTest, ASignalThatIsNoFaultOfItsOwnIsFromOutside) {
  const auto is_from_outside = [&](const std::string& text) {
    return start(text).receive(patience()).error().from_outside;
  };
  for (const char* const signal : {"KILL", "TERM", "XCPU", "XFSZ", "HUP", "USR1"})
    EXPECT_TRUE(is_from_outside("kill -" + std::string(signal) + " $$\n")) << signal;
  for (const char* const signal : {"SEGV", "ABRT", "BUS", "ILL", "FPE"})
    EXPECT_FALSE(is_from_outside("kill -" + std::string(signal) + " $$\n")) << signal;
  EXPECT_FALSE(is_from_outside("exit 137\n"));
}

TEST_F(WorkerProcessTest, OneThatTheHostReapedIsGoneAllTheSame) {
  WorkerProcess worker = start("exit 3\n");
  ASSERT_EQ(::waitpid(worker.pid(), nullptr, 0), worker.pid());
  EXPECT_FALSE(worker.alive());
  EXPECT_THAT(
      worker.receive(patience()),
      test::IsError(
          ErrorCode::kWorkerCrashed,
          EndsWith(", ended, and another part of this program took its exit status")));
}

TEST_F(WorkerProcessTest, AZombieIsNotAlive) {
  const WorkerProcess worker = start("exit 0\n");
  wait_for_the_end_of(worker);
  EXPECT_FALSE(worker.alive());
  EXPECT_TRUE(start(ScriptedWorker::kStay).alive());
}

TEST_F(WorkerProcessTest, AFrameToOneThatHasEndedIsACrashAndNoSignal) {
  WorkerProcess worker = start("exit 4\n");
  wait_for_the_end_of(worker);
  EXPECT_THAT(
      worker.send(encode_request(CompileJob{}), patience()),
      test::IsError(ErrorCode::kWorkerCrashed, HasSubstr("exited with status 4")));
}

TEST_F(WorkerProcessTest, RepliesArriveOneByOneHoweverTheyAreCut) {
  CompileOutput large;
  large.log = std::string(1 << 20, 'x');
  const Bytes frame = encode_reply(large);
  const std::string_view bytes = as_text(frame);
  WorkerProcess worker =
      start(scripts_.send(bytes.substr(0, 10)) + scripts_.send(bytes.substr(10)) +
            scripts_.send(Progress{BuildPhase::kReading}) +
            std::string(ScriptedWorker::kStay));
  const auto first = worker.receive(patience());
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(std::get<CompileOutput>(*first), large);
  const auto second = worker.receive(patience());
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(std::get<Progress>(*second).phase, BuildPhase::kReading);
}

TEST_F(WorkerProcessTest, WhatIsNoFrameIsCorrupt) {
  WorkerProcess worker =
      start("printf 'what is a frame, after all?' >&3\nexec sleep 60\n");
  EXPECT_THAT(worker.receive(patience()), test::IsError(ErrorCode::kCorrupt));
}

TEST_F(WorkerProcessTest, ALimitEndsTheExchangeAndNotTheWorker) {
  WorkerProcess worker = start(ScriptedWorker::kStay);
  const auto code_under = [&](const ExchangeLimits& limits) {
    const auto reply = worker.receive(limits);
    EXPECT_TRUE(worker.alive());
    return reply ? ErrorCode::kNotFound : reply.error().code;
  };
  ExchangeLimits limits = patience();
  limits.memory_bytes = 1;
  EXPECT_EQ(code_under(limits), ErrorCode::kResourceLimit);
  limits.deadline = std::chrono::steady_clock::now();
  EXPECT_EQ(code_under(limits), ErrorCode::kTimeout);
  std::stop_source source;
  source.request_stop();
  limits.stop = source.get_token();
  EXPECT_EQ(code_under(limits), ErrorCode::kCancelled);
}

TEST_F(WorkerProcessTest, ItsChildrenCountAsItsMemoryAndEndWithIt) {
  const auto list = scripts_.folder() / "child";
  WorkerProcess worker = start("sleep 60 &\necho $! >" + list.native() + '\n' +
                               scripts_.say_hello() + "wait\n");
  ASSERT_TRUE(worker.receive(patience()));
  pid_t child = -1;
  std::ifstream(list) >> child;
  ASSERT_TRUE(test::is_running(child));
  const auto pages_of = [](pid_t pid) {
    std::ifstream statm("/proc/" + std::to_string(pid) + "/statm");
    std::uint64_t total = 0;
    std::uint64_t resident = 0;
    statm >> total >> resident;
    return resident;
  };
  EXPECT_GT(worker.resident_bytes(),
            pages_of(worker.pid()) * static_cast<std::uint64_t>(::getpagesize()));
  worker.kill();
  EXPECT_EQ(worker.resident_bytes(), 0U);
  EXPECT_TRUE(test::eventually(20s, [&] { return !test::is_running(child); }));
}

TEST_F(WorkerProcessTest, AnotherOneInItsPlaceEndsIt) {
  WorkerProcess worker = start(ScriptedWorker::kStay);
  const pid_t first = worker.pid();
  worker = start(ScriptedWorker::kStay);
  EXPECT_NE(worker.pid(), first);
  EXPECT_FALSE(test::is_running(first));
  EXPECT_TRUE(worker.alive());
}

}  // namespace
}  // namespace kiln::compile
