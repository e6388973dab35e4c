// When credentials are found and renewed, by a command that counts its runs, and what
// requests do meanwhile.

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "process/run_command.h"
#include "remote/client/server.h"
#include "tests/integration/remote_transfers.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::remote {
namespace {

const Digest kKey = Digest::from_hex(std::string(64, 'a')).value();

class RemoteCredentialsTest : public RemoteTransferTest {
 protected:
  RemoteCredentialsTest() {
    std::ofstream(dir_.path() / "auth")
        << "command /bin/sh " << (dir_.path() / "helper").native() << '\n';
    ::chmod((dir_.path() / "auth").c_str(), 0600);
    own_ = make_server(transfers_);
  }

  std::unique_ptr<Server> make_server(Transfers& transfers) {
    return std::make_unique<Server>(
        ServerAddress{.base = server_.url("/kiln")},
        ServerFiles{.auth = dir_.path() / "auth", .ca = {}, .certificate = {}},
        std::shared_ptr<cache::KeyFile>(), cache::PayloadCheck(), transfers);
  }

  /// What the command does, in its folder; `$n` counts its runs from 1.
  void command(const std::string& script) {
    const auto path = dir_.path() / "helper";
    std::ofstream(path.native() + ".new")
        << "cd " << dir_.path().native() << "; echo >> runs; n=$(wc -l < runs)\n"
        << script << '\n';
    std::filesystem::rename(path.native() + ".new", path);
  }
  /// One that gives the token "t<n>", which holds for so many seconds.
  static std::string token_for(const std::string& seconds) {
    return "ends=$(date -u -d '+" + seconds + R"( seconds' +%Y-%m-%dT%H:%M:%SZ)
printf '{"headers":{"Authorization":["Bearer t%s"]},"expires":"%s"}' $n $ends)";
  }
  [[nodiscard]] std::size_t runs() const {
    std::ifstream file(dir_.path() / "runs");
    return static_cast<std::size_t>(
        std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
  }
  [[nodiscard]] bool wait_for_runs(std::size_t number) const {
    const auto deadline = Clock::now() + seconds(10);
    while (runs() < number && Clock::now() < deadline)
      std::this_thread::sleep_for(milliseconds(5));
    return runs() >= number;
  }

  std::future<Answer> ask(milliseconds whole = seconds(5)) {
    auto promise = std::make_shared<std::promise<Answer>>();
    last_ = own_->get(kKey, "",
                      [promise](Answer got) { promise->set_value(std::move(got)); },
                      {.whole = whole});
    return promise->get_future();
  }
  /// The token of the last request.
  std::string sent() {
    ask().get();
    const std::string head = server_.heads().back();
    const std::size_t at = head.find("Bearer ");
    return at == std::string::npos ? ""
                                   : head.substr(at + 7, head.find('\r', at) - at - 7);
  }

  test::TempDir dir_;
  std::atomic<bool> denies_ = false;
  FaultServer server_{[this](const Exchange& exchange) {
    exchange.answer(denies_ ? "401 Unauthorized" : "404 Not Found", "");
    return true;
  }};
  std::unique_ptr<Server> own_;
  std::uint64_t last_ = 0;
};

TEST_F(RemoteCredentialsTest, ManyRequestsAtOnceFindThemOnce) {
  command("sleep 0.3\n" + token_for("3600"));
  std::vector<std::future<Answer>> answers(64);
  {
    std::vector<std::jthread> threads;
    for (auto& each : answers) {
      threads.emplace_back([this, &each] {
        auto promise = std::make_shared<std::promise<Answer>>();
        each = promise->get_future();
        own_->get(kKey, "",
                  [promise](Answer got) { promise->set_value(std::move(got)); });
      });
    }
  }
  for (auto& each : answers) EXPECT_EQ(each.get().status, 404U);
  EXPECT_EQ(runs(), 1U);
  EXPECT_THAT(server_.heads(), SizeIs(64));
  EXPECT_THAT(server_.heads(), Each(HasSubstr("Bearer t1\r\n")));
  // Denied to all of them, they are found once more.
  own_->read_credentials_again();
  own_->read_credentials_again();
  EXPECT_EQ(sent(), "t2");
  EXPECT_EQ(own_->credentials_source().substr(0, 15), "command /bin/sh");
}

TEST_F(RemoteCredentialsTest, TheyAreRenewedBeforeTheyEndAndNoRequestWaits) {
  command(token_for("4"));
  EXPECT_EQ(sent(), "t1");
  // A second before their end at the latest: the next request goes with the old ones.
  command("sleep 0.2\n" + token_for("3600"));
  const auto deadline = Clock::now() + seconds(10);
  std::string last;
  while (runs() < 2 && Clock::now() < deadline) {
    last = sent();
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(last, "t1");
  while (last == "t1" && Clock::now() < deadline) last = sent();
  EXPECT_EQ(last, "t2");
  EXPECT_EQ(runs(), 2U);
}

TEST_F(RemoteCredentialsTest, OldOnesHoldWhileNoNewOnesComeAndNotBeyondTheirEnd) {
  command(token_for("5"));
  EXPECT_EQ(sent(), "t1");
  command("echo no >&2; exit 1");
  const auto deadline = Clock::now() + seconds(10);
  while (runs() < 2 && Clock::now() < deadline) {
    EXPECT_EQ(sent(), "t1");
    std::this_thread::sleep_for(milliseconds(20));
  }
  Answer answer;
  while (answer.verdict != Verdict::kDenied && Clock::now() < deadline) {
    answer = ask().get();
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_THAT(answer.why, HasSubstr("it failed with 1: no"));
  EXPECT_LT(runs(), 30U) << "not at each request";
  const std::size_t asked = server_.heads().size();
  EXPECT_EQ(ask().get().verdict, Verdict::kDenied);
  EXPECT_THAT(server_.heads(), SizeIs(asked));
  command(token_for("3600"));
  EXPECT_NE(sent(), "t1");
}

TEST_F(RemoteCredentialsTest, ARequestWaitsForThemAsLongAsForItsAnswer) {
  command("touch begun; sleep 5");
  const auto began = Clock::now();
  const Answer answer = ask(milliseconds(300)).get();
  EXPECT_EQ(answer.verdict, Verdict::kDenied);
  EXPECT_THAT(answer.why, HasSubstr("have not come in time"));
  EXPECT_LT(Clock::now() - began, seconds(3));
  EXPECT_EQ(runs(), 1U);
  EXPECT_THAT(server_.heads(), SizeIs(0));
}

TEST_F(RemoteCredentialsTest, AProgramMayChangeItsVariablesMeanwhile) {
  std::ofstream(dir_.path() / "auth") << "aws\n";
  ::setenv("AWS_ACCESS_KEY_ID", "THEN", 1);        // NOLINT(concurrency-mt-unsafe)
  ::setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);  // NOLINT(concurrency-mt-unsafe)
  own_ = make_server(transfers_);
  for (const char* each : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"})
    ::unsetenv(each);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(ask().get().status, 404U);
  EXPECT_THAT(server_.heads(), Each(HasSubstr("Credential=THEN/")));
}

TEST_F(RemoteCredentialsTest, OneThatIsCancelledMeanwhileIsNotSent) {
  command("while [ ! -e go ]; do sleep 0.02; done\n" + token_for("3600"));
  auto cancelled = ask();
  const std::uint64_t id = last_;
  auto stays = ask();
  ASSERT_TRUE(wait_for_runs(1));
  own_->cancel(id);
  std::ofstream(dir_.path() / "go") << "go";
  EXPECT_EQ(stays.get().status, 404U);
  EXPECT_THAT(server_.heads(), SizeIs(1));
}

TEST_F(RemoteCredentialsTest, ACommandThatRunsOutlivesServerAndTransfers) {
  command("touch begun; while [ ! -e go ]; do sleep 0.02; done\n" + token_for("3600"));
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                         std::filesystem::directory_iterator());
  };
  own_.reset();
  const auto before = threads();
  auto transfers = std::make_unique<Transfers>(helper());
  own_ = make_server(*transfers);
  std::ignore = ask();
  ASSERT_TRUE(wait_for_runs(1));
  own_.reset();
  transfers.reset();
  std::ofstream(dir_.path() / "go") << "go";
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (threads() > before && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_LE(threads(), before);
  EXPECT_THAT(server_.heads(), SizeIs(0));
}

/// Of /bin/sh.
Result<std::string> run(const char* script, milliseconds limit) {
  return run_command({.name = "sh",
                      .words = {"/bin/sh", "-c", script},
                      .input = {},
                      .limit = limit,
                      .quotes_errors = true});
}

TEST(RunCommandTest, ACommandThatPrintsErrorsWithoutEndIsEndedAtItsTime) {
  const auto began = Clock::now();
  EXPECT_THAT(run("exec yes >&2", milliseconds(300)),
              test::IsError(ErrorCode::kTimeout, testing::_));
  EXPECT_LT(Clock::now() - began, seconds(20));
}

TEST(RunCommandTest, WhoItLeavesBehindWithItsPipesHoldsNobodyUp) {
  const auto began = Clock::now();
  const auto said = run("sleep 60 & echo $!; head -c 50000 /dev/zero >&2", seconds(50));
  EXPECT_LT(Clock::now() - began, seconds(20));
  ASSERT_TRUE(said.has_value()) << said.error().message;
  EXPECT_EQ(::kill(std::stoi(*said), SIGKILL), 0) << "it was ended";
  EXPECT_EQ(run("yes >&2 & echo all", milliseconds(500)), "all\n");
}

TEST(RunCommandTest, WhatItWritesJustBeforeItEndsCounts) {
  for (int i = 0; i < 60; ++i)
    ASSERT_EQ(run(i % 2 == 0 ? "echo all" : "sleep 0.004; echo all", seconds(20)),
              "all\n");
  EXPECT_EQ(run("head -c 4000 /dev/zero", seconds(20)).value().size(), 4000U);
}

TEST(RunCommandTest, AProgramWithoutStandardFilesRunsOneThatHasThem) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (const int each : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(each);
    const auto said = run("read x; echo all; echo wrong >&2", seconds(20));
    const auto failed = run("echo wrong >&2; exit 1", seconds(20));
    ::_exit(said == "all\n" && !failed &&
                    failed.error().message.find("1: wrong") != std::string::npos
                ? 0
                : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace kiln::remote
