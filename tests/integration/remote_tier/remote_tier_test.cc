// A remote cache behind a key: what comes from it, what a bad one costs, and what a
// build beside it has to do with it. No compiler is needed for that.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "tests/integration/remote_tier/machine.h"
#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"
#include "tests/support/processes.h"
#include "util/log.h"

namespace kiln::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using Clock = std::chrono::steady_clock;

/// Far more than any wait here, and far less than a test may take.
constexpr auto kForEver = 60s;
/// Of those who wait for a server in vain.
constexpr auto kShort = 100ms;

class RemoteTierTest : public testing::Test {
 protected:
  RemoteTierTest() { fill(server_, 20); }
  ~RemoteTierTest() override { log_to({}); }

  void keep_log() {
    log_to([this](LogLevel, const std::string& line) {
      const std::lock_guard lock(mutex_);
      log_.push_back(line);
    });
  }
  std::vector<std::string> log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  RemoteServer server_;
  const std::string label_ = remote::label_of(server_.address());
  Machine machine_{{server_.address()}};

 private:
  std::mutex mutex_;
  std::vector<std::string> log_;
};

TEST_F(RemoteTierTest, AHitIsPublishedHereAndNothingIsBuilt) {
  const auto fetched = machine_.fetch(1);
  ASSERT_TRUE(fetched) << fetched.error().message;
  EXPECT_EQ(fetched->outcome, FetchOutcome::kHit);
  EXPECT_EQ(fetched->tier, cache::Tier::kRemote);
  EXPECT_EQ(fetched->server, label_);
  EXPECT_EQ(as_text(fetched->object->file()), as_text(object_of(1).file()));
  EXPECT_FALSE(fetched->not_stored);
  EXPECT_EQ(machine_.built, 0);
  const auto again = machine_.fetch(1);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->tier, cache::Tier::kDisk);
  EXPECT_EQ(server_.requests(), 1);
  EXPECT_EQ(machine_.counted("hits"), 2U);
  EXPECT_EQ(machine_.counted("remote_hits"), 1U);
  EXPECT_EQ(machine_.gets("hit"), 1U);
  EXPECT_EQ(machine_.counted("compiled"), 0U);
}

TEST_F(RemoteTierTest, AMissIsBuiltAtOnceAndNotUploadedByWhoOnlyReads) {
  const auto fetched = machine_.fetch(99);
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->outcome, FetchOutcome::kCompiled);
  EXPECT_EQ(fetched->tier, cache::Tier::kBuild);
  machine_.close();
  EXPECT_EQ(server_.requests(), 1);
  EXPECT_EQ(machine_.gets("miss"), 1U);
}

TEST_F(RemoteTierTest, NothingIsStartedBeforeTheFirstMissHere) {
  ASSERT_TRUE(machine_.fetch(1));
  machine_.close();
  Machine other{{server_.address()}};
  other.root = machine_.root;
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  const auto threads = count();
  const auto children = children_of(::getpid()).size();
  ASSERT_EQ(other.fetch(1)->tier, cache::Tier::kDisk);
  EXPECT_LE(count(), threads + 1);  // the cache's own
  EXPECT_EQ(children_of(::getpid()).size(), children);
}

TEST_F(RemoteTierTest, AnAnswerThatComesLateStopsTheBuildThatWasBegun) {
  machine_.options.wait = kShort;
  server_.be_late(400ms);
  const auto fetched = machine_.fetch(1, {.takes = 20s});
  ASSERT_TRUE(fetched) << fetched.error().message;
  EXPECT_EQ(fetched->tier, cache::Tier::kRemote);
  EXPECT_EQ(machine_.built, 1);
  EXPECT_EQ(machine_.stopped, 1);
  // The stopped build is no failure, of anybody.
  EXPECT_EQ(machine_.counted("compile_failed"), 0U);
  EXPECT_EQ(machine_.counted("worker_killed"), 0U);
  const auto failed = machine_.cache().lock_folder().path / "failed";
  EXPECT_TRUE(!std::filesystem::exists(failed) || std::filesystem::is_empty(failed));
}

TEST_F(RemoteTierTest, ABuildThatIsQuickerIsTheAnswerAndTheServersFailure) {
  machine_.options.wait = kShort;
  server_.be_silent();
  for (int i = 0; i < 3; ++i) {
    const auto fetched = machine_.fetch(i, {.takes = 5ms});
    ASSERT_TRUE(fetched);
    EXPECT_EQ(fetched->outcome, FetchOutcome::kCompiled);
  }
  EXPECT_EQ(machine_.gets("overtaken"), 3U);
  EXPECT_EQ(machine_.counted("remote_breaker_open." + label_), 1U);
}

TEST_F(RemoteTierTest, APartOfAGetThatHasWaitedIsBuiltAtOnceAndBlamesNobody) {
  machine_.options.wait = 20s;
  server_.be_silent();
  for (int i = 0; i < 5; ++i) {
    const auto began = Clock::now();
    EXPECT_EQ(machine_.fetch(i, {.passed = 20s})->tier, cache::Tier::kBuild);
    EXPECT_LT(Clock::now() - began, 10s);
  }
  EXPECT_EQ(machine_.gets("abandoned"), 5U);
  EXPECT_EQ(machine_.gets("overtaken"), 0U);
  server_.be_honest();  // and takes what arrives before a long build has ended
  EXPECT_EQ(machine_.fetch(6, {.takes = kForEver, .passed = 20s})->tier,
            cache::Tier::kRemote);
}

/// A server that is bad in one way.
struct Bad {
  const char* name;
  std::function<void(RemoteServer&)> become;
};

class BadServerTest : public RemoteTierTest, public testing::WithParamInterface<Bad> {};

TEST_P(BadServerTest, CostsThreeWaitsAnOpeningAndIsAskedAgainLater) {
  GetParam().become(server_);
  machine_.options.wait = kShort;
  const auto build = [&](int number) {
    const auto began = Clock::now();
    const auto fetched = machine_.fetch(number);
    EXPECT_TRUE(fetched && fetched->outcome == FetchOutcome::kCompiled);
    // A transfer may take ten seconds: nobody waited for it to end.
    EXPECT_LT(Clock::now() - began, kShort + 5s);
  };
  for (int i = 0; i < 10; ++i) build(i);
  EXPECT_EQ(machine_.all_gets(), 3U);
  // Half open: one probe, which fails, and then nobody asks for twice as long.
  machine_.clock.jump(31s);
  for (int i = 10; i < 14; ++i) build(i);
  EXPECT_EQ(machine_.all_gets(), 4U);
  machine_.clock.jump(31s);
  build(14);
  EXPECT_EQ(machine_.all_gets(), 4U);
  EXPECT_LE(server_.requests("GET"), 4);
  server_.be_honest();
  machine_.clock.jump(7201s);  // also where it asked for a rest of an hour
  for (int i = 15; i < 18; ++i) {
    EXPECT_TRUE(machine_.hits(i)) << i;
  }
}

TEST_F(RemoteTierTest, ADeadServerCostsManyThreadsThreeWaitsAndThoseBesideTheThird) {
  constexpr int kThreads = 8;
  server_.be_silent();
  machine_.options.wait = kShort;
  std::ignore = machine_.builds();
  test::in_threads(kThreads, [&](int thread) {
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(machine_.fetch(thread * 100 + i));
  });
  EXPECT_GE(machine_.gets("overtaken"), 3U);
  EXPECT_LE(machine_.all_gets(), 3U + kThreads - 1);
}

std::vector<Bad> bad_servers() {
  const auto status = [](const char* text) {
    return [text](RemoteServer& server) { server.set_status(text); };
  };
  return {{"Silent", [](RemoteServer& server) { server.be_silent(); }},
          {"Status500", status("500 Internal Server Error")},
          {"Status503", status("503 Service Unavailable")},
          {"Reset",
           [](RemoteServer& server) {
             server.set_fault([](const Exchange& exchange) {
               exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nKILN");
               exchange.reset();
               return true;
             });
           }},
          {"StalledBody",
           [](RemoteServer& server) {
             server.set_fault([](const Exchange& exchange) {
               exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nKILN");
               exchange.wait_for_its_end();
               return true;
             });
           }},
          {"OneByteASecond", [](RemoteServer& server) {
             const auto body = signed_body(object_of(1), Machine::signing_key());
             server.set_fault([body](const Exchange& exchange) {
               exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
               for (int i = 0; i < 100 && !exchange.has_stopped(); ++i) {
                 exchange.send(body.substr(static_cast<std::size_t>(i), 1));
                 exchange.pause(1s);
               }
               return true;
             });
           }}};
}

INSTANTIATE_TEST_SUITE_P(Ways, BadServerTest, testing::ValuesIn(bad_servers()),
                         [](const auto& test) { return std::string(test.param.name); });

class BadBodiesTest : public RemoteTierTest, public testing::WithParamInterface<Bad> {};

TEST_P(BadBodiesTest, CostNoMoreThanThirtyTwoQuestionsAnOpening) {
  GetParam().become(server_);
  const auto build = [&](int first, int last) {
    for (int i = first; i < last; ++i) {
      const auto fetched = machine_.fetch(i);
      ASSERT_TRUE(fetched && fetched->outcome == FetchOutcome::kCompiled) << i;
    }
  };
  build(0, 40);
  EXPECT_EQ(machine_.gets("rejected"), 32U);
  EXPECT_EQ(machine_.all_gets(), 32U);
  // The machine's other processes find out for themselves.
  Machine other({server_.address()});
  other.root = machine_.root;
  ASSERT_TRUE(other.fetch(40));
  EXPECT_EQ(other.gets("rejected"), 1U);
  // The probe is as bad; the next one finds what is good.
  machine_.clock.jump(31s);
  build(41, 44);
  EXPECT_EQ(machine_.all_gets(), 33U);
  fill(server_, 60);
  server_.be_honest();
  machine_.clock.jump(61s);
  for (int i = 45; i < 50; ++i) EXPECT_TRUE(machine_.hits(i)) << i;
}

std::vector<Bad> bad_bodies() {
  const auto body = [](std::function<std::string(std::string)> damage) {
    return [damage](RemoteServer& server) {
      server.set_fault([damage](const Exchange& exchange) {
        exchange.answer("200 OK",
                        damage(signed_body(object_of(1001), Machine::signing_key())));
        return true;
      });
    };
  };
  return {{"CaptivePortal", body([](auto) { return "<html>pay</html>"; })},
          {"AnotherKeysObject", body([](auto text) { return text; })},
          {"Flipped", body([](std::string text) {
             text[300] ^= 1;
             return text;
           })},
          {"Cut", body([](const std::string& text) {
             return text.substr(0, text.size() - 9);
           })}};
}

INSTANTIATE_TEST_SUITE_P(Ways, BadBodiesTest, testing::ValuesIn(bad_bodies()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(RemoteTierTest, AFullDiskHereIsNotTheServersFault) {
  keep_log();
  ASSERT_TRUE(machine_.hits(0));
  const auto helpers = children_of(::getpid());
  ASSERT_EQ(helpers.size(), 1U);
  rlimit size{.rlim_cur = 10, .rlim_max = RLIM_INFINITY};
  ASSERT_EQ(::prlimit(helpers.front(), RLIMIT_FSIZE, &size, nullptr), 0);
  for (int i = 1; i < 6; ++i) EXPECT_EQ(machine_.fetch(i)->tier, cache::Tier::kBuild);
  size.rlim_cur = RLIM_INFINITY;
  ASSERT_EQ(::prlimit(helpers.front(), RLIMIT_FSIZE, &size, nullptr), 0);
  EXPECT_TRUE(machine_.hits(6));
  EXPECT_EQ(machine_.gets("body_file"), 5U);
  EXPECT_THAT(log(), testing::ElementsAre(HasSubstr("TMPDIR")));
}

TEST_F(RemoteTierTest, GoodObjectsBehindBadOnesAreFetched) {
  for (int i = 0; i < 10; ++i) server_.put(object_of(i).key(), "");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(machine_.fetch(i)->tier, cache::Tier::kBuild);
  for (int i = 10; i < 20; ++i) EXPECT_TRUE(machine_.hits(i)) << i;
  EXPECT_EQ(machine_.gets("rejected"), 10U);
}

TEST_F(RemoteTierTest, ARestThatIsAskedForIsGivenAfterOneFailure) {
  server_.set_status("429 Too Many Requests", "Retry-After: 100\r\n");
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(machine_.fetch(i));
  EXPECT_EQ(server_.requests(), 1);
  server_.be_honest();
  machine_.clock.jump(99s);
  EXPECT_EQ(machine_.fetch(5)->tier, cache::Tier::kBuild);
  machine_.clock.jump(60s);
  EXPECT_EQ(machine_.fetch(6)->tier, cache::Tier::kRemote);
}

TEST_F(RemoteTierTest, NobodyThereCostsNothingWorthMentioning) {
  remote::ServerAddress nobody;
  nobody.base = "http://127.0.0.1:1";
  Machine machine{{nobody}};
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(machine.fetch(i)->outcome, FetchOutcome::kCompiled);
  EXPECT_EQ(machine.gets("connect"), 3U);
}

TEST_F(RemoteTierTest, TheSecondServerIsAskedWhereTheFirstHasNothingOrIsDead) {
  RemoteServer first;
  Machine machine{{first.address(), server_.address()}};
  machine.options.wait = kShort;
  EXPECT_EQ(machine.fetch(0, {.takes = kForEver})->server, label_);
  first.set_status("500 Internal Server Error");
  EXPECT_TRUE(machine.hits(1));
  // The build overtakes the first, until it is left alone; then the second has its
  // turn.
  first.be_silent();
  for (int i = 2; i < 4; ++i) EXPECT_EQ(machine.fetch(i)->tier, cache::Tier::kBuild);
  for (int i = 4; i < 10; ++i) EXPECT_TRUE(machine.hits(i));
  EXPECT_EQ(server_.requests(), 8);
}

TEST_F(RemoteTierTest, AnObjectThatFailsACheckIsAMissAndItsKeyIsNotAskedForAgain) {
  keep_log();
  // Another's code under the key, and every hash made anew: the signature alone tells.
  const auto poisoned = object_of(1, "\177ELF of somebody else");
  ASSERT_EQ(poisoned.key(), object_of(1).key());
  server_.put(poisoned.key(), signed_body(poisoned, PrivateKey::generate().value()));
  const auto fetched = machine_.fetch(1);
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->outcome, FetchOutcome::kCompiled);
  EXPECT_EQ(machine_.counted("remote_rejected.signature"), 1U);
  EXPECT_THAT(log(), Contains(AllOf(HasSubstr("signature"), HasSubstr("not used"))));
  // Its local copy is lost.
  ASSERT_TRUE(machine_.cache().remove(poisoned.key()));
  EXPECT_EQ(machine_.fetch(1)->outcome, FetchOutcome::kCompiled);
  EXPECT_EQ(server_.requests(), 1);
  EXPECT_EQ(machine_.fetch(2)->tier, cache::Tier::kRemote);
  // By one of ours it would have been believed.
  Machine other{{server_.address()}};
  server_.put(poisoned.key(), signed_body(poisoned, Machine::signing_key()));
  EXPECT_EQ(as_text(other.fetch(1)->object->payload()), "\177ELF of somebody else");
}

TEST_F(RemoteTierTest, WhoSignedAHitIsRememberedAndABuildHasNoSigner) {
  EXPECT_TRUE(machine_.hits(1));
  EXPECT_EQ(machine_.fetch(50)->tier, cache::Tier::kBuild);
  auto entries = machine_.cache().walk({}, cache::Damaged::kLeaveOut).value();
  machine_.cache().add_signers(entries);
  ASSERT_EQ(entries.size(), 2U);
  for (const cache::Entry& entry : entries) {
    const std::vector<cache::SignedBy> ours{{Machine::signing_key().public_key().id,
                                             server_.address().base,
                                             object_of(1).payload_digest()}};
    EXPECT_EQ(entry.signed_by,
              entry.key == object_of(1).key() ? ours : std::vector<cache::SignedBy>());
  }
}

TEST_F(RemoteTierTest, AKeyFileThatIsReplacedBetweenTwoGetsOfOneServiceCounts) {
  EXPECT_TRUE(machine_.hits(1));
  replace_keys(machine_.keys, to_text(PrivateKey::generate()->public_key()));
  machine_.clock.jump(30s);
  EXPECT_EQ(machine_.fetch(2)->tier, cache::Tier::kBuild);
  EXPECT_EQ(machine_.counted("remote_rejected.signature"), 1U);
  replace_keys(machine_.keys, to_text(Machine::signing_key().public_key()) +
                                  "revoked object " + object_of(3).key().hex());
  machine_.clock.jump(30s);
  EXPECT_EQ(machine_.fetch(3)->tier, cache::Tier::kBuild) << "it is revoked";
  EXPECT_TRUE(machine_.hits(4)) << "the key is back";
}

TEST_F(RemoteTierTest, AKeyFileThatIsGoneEndsAllTrustAndBlamesNoServer) {
  EXPECT_TRUE(machine_.hits(1));
  std::filesystem::remove(machine_.keys);
  machine_.clock.jump(30s);
  const int before = server_.requests();
  for (int i = 2; i < 8; ++i) EXPECT_EQ(machine_.fetch(i)->tier, cache::Tier::kBuild);
  EXPECT_EQ(server_.requests(), before) << "nothing that it sends would count";
  replace_keys(machine_.keys, to_text(Machine::signing_key().public_key()));
  machine_.clock.jump(5s);
  EXPECT_TRUE(machine_.hits(8)) << "at once: no breaker is open";
}

TEST_F(RemoteTierTest, ASoundObjectThatCannotBeUsedHereIsNotAskedForAgain) {
  ASSERT_EQ(machine_.fetch(1)->tier, cache::Tier::kRemote);
  ASSERT_TRUE(machine_.builds().remove(object_of(1).key()));
  EXPECT_EQ(machine_.fetch(1)->tier, cache::Tier::kBuild);
  EXPECT_EQ(server_.requests(), 1);
}

TEST_F(RemoteTierTest, TheCallersOwnStopEndsTheWaitAndBlamesNobody) {
  server_.be_silent();
  for (int i = 0; i < 5; ++i) {
    std::stop_source stop;
    std::thread stopper([&] {
      eventually(10s, [&] { return server_.requests() > i; });
      stop.request_stop();
    });
    const auto fetched = machine_.fetch(i, {}, stop.get_token());
    stopper.join();
    EXPECT_THAT(fetched, test::IsError(ErrorCode::kCancelled));
  }
  EXPECT_EQ(machine_.built, 0);
  EXPECT_EQ(machine_.gets("abandoned"), 5U);  // it is not left alone
}

TEST_F(RemoteTierTest, TheCallersOwnStopEndsTheBuildBesideASilentServer) {
  machine_.options.wait = kShort;
  server_.be_silent();
  std::stop_source stop;
  std::thread stopper([&] {
    eventually(10s, [&] { return machine_.built == 1; });
    stop.request_stop();
  });
  const auto fetched = machine_.fetch(1, {.takes = kForEver}, stop.get_token());
  stopper.join();
  EXPECT_THAT(fetched, test::IsError(ErrorCode::kCancelled));
  EXPECT_EQ(machine_.stopped, 1);
}

TEST_F(RemoteTierTest, ASourcesOwnErrorIsTheAnswer) {
  machine_.options.wait = kShort;
  server_.be_silent();
  const auto fetched =
      machine_.fetch(1, {.error = Error{ErrorCode::kCompileFailed, "syntax"}});
  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().message, "syntax");
}

TEST_F(RemoteTierTest, AMachineThatCannotBuildLeavesTheServerItsTime) {
  machine_.options.wait = kShort;
  const BuildPlan impossible{.error = Error{ErrorCode::kUnavailable, "no NVRTC"},
                             .begins = false};
  server_.be_late(300ms);
  EXPECT_EQ(machine_.fetch(1, impossible)->tier, cache::Tier::kRemote);
  EXPECT_EQ(machine_.built, 1);
  server_.be_silent();
  const auto began = Clock::now();
  const auto fetched = machine_.fetch(2, impossible);
  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().message, "no NVRTC");
  EXPECT_LT(Clock::now() - began, 10s);  // the transfer's own limits
}

TEST_F(RemoteTierTest, WithoutABuildAHitIsWaitedForAndADeadServerByItsLimitsAlone) {
  server_.be_late(300ms);
  const auto hit = machine_.find_alone(1);
  ASSERT_TRUE(hit && *hit);
  EXPECT_EQ((*hit)->tier, cache::Tier::kRemote);
  server_.be_honest();
  const auto miss = machine_.find_alone(99);
  ASSERT_TRUE(miss);
  EXPECT_FALSE(*miss);
  server_.be_silent();
  const auto began = Clock::now();
  const auto dead = machine_.find_alone(2);
  ASSERT_TRUE(dead);
  EXPECT_FALSE(*dead);
  EXPECT_LT(Clock::now() - began, 10s);
  EXPECT_EQ(machine_.gets("timeout"), 1U);
}

TEST_F(RemoteTierTest, BrieflyIsNoLongerThanABuildWouldWait) {
  machine_.options.wait = kShort;
  server_.be_silent();
  const auto found = machine_.find_alone(1, Remotes::kBriefly);
  ASSERT_TRUE(found);
  EXPECT_FALSE(*found);
  EXPECT_EQ(machine_.gets("overtaken"), 1U);
  server_.be_honest();
  Machine patient{{server_.address()}};
  const auto hit = patient.find_alone(1, Remotes::kBriefly);
  ASSERT_TRUE(hit && *hit);
}

TEST_F(RemoteTierTest, WithoutARemoteNothingIsFoundThere) {
  Machine machine{{}};
  EXPECT_FALSE(*machine.find_alone(1));
  EXPECT_EQ(machine.fetch(1)->tier, cache::Tier::kBuild);
}

TEST_F(RemoteTierTest, ThreadsOfAProcessAskOnce) {
  server_.be_late(200ms);
  machine_.builds();
  std::atomic<int> remote = 0;
  test::in_threads(8, [&] {
    const auto fetched = machine_.fetch(1);
    ASSERT_TRUE(fetched);
    EXPECT_EQ(fetched->outcome, FetchOutcome::kHit);
    remote += fetched->tier == cache::Tier::kRemote ? 1 : 0;
  });
  EXPECT_EQ(server_.requests(), 1);
  EXPECT_EQ(remote, 1);
}

TEST_F(RemoteTierTest, ManyKeysOfManyThreadsArriveEachOnce) {
  machine_.builds();
  test::in_threads(4, [&](int t) {
    for (int i = 0; i < 20; ++i) {
      const int number = (i + 5 * t) % 20;
      const auto fetched = machine_.fetch(number, {.takes = 5s});
      ASSERT_TRUE(fetched);
      EXPECT_EQ(as_text(fetched->object->file()), as_text(object_of(number).file()));
    }
  });
  EXPECT_EQ(machine_.counted("remote_hits"), 20U);
}

TEST_F(RemoteTierTest, AReadOnlyRootIsServedByARemoteAndAsksOnce) {
  if (::geteuid() == 0) {
    // Root may write anywhere: a file where the folder should be turns the cache off.
    std::ofstream(machine_.root) << "no folder";
  } else {
    std::filesystem::create_directory(machine_.root);
    ::chmod(machine_.root.c_str(), 0500);
  }
  const auto fetched = machine_.fetch(1);
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->tier, cache::Tier::kRemote);
  EXPECT_TRUE(fetched->not_stored);
  EXPECT_EQ(machine_.fetch(1)->tier, cache::Tier::kMemory);
  EXPECT_EQ(server_.requests(), 1);
}

TEST_F(RemoteTierTest, CredentialsAreReadAgainOnceAndThenTheServerIsLeftAlone) {
  keep_log();
  const auto auth = machine_.dir.path() / "auth";
  const auto write_auth = [&](const std::string& token) {
    std::ofstream(auth) << "bearer " << token;
    ::chmod(auth.c_str(), 0600);
  };
  write_auth("stale-secret");
  machine_.options.files.auth = auth;
  server_.set_fault([](const Exchange& exchange) {
    if (exchange.head.find("Bearer new-secret\r\n") != std::string::npos)
      return false;
    exchange.answer("401 Unauthorized", "stale-secret");
    return true;
  });
  machine_.builds();
  // It is renewed while the process runs: the same get has its object.
  ASSERT_EQ(machine_.fetch(99)->tier, cache::Tier::kBuild);
  EXPECT_EQ(server_.requests(), 2);  // once with each reading
  machine_.clock.jump(901s);
  write_auth("new-secret");
  EXPECT_EQ(machine_.fetch(1)->tier, cache::Tier::kRemote);
  EXPECT_EQ(machine_.gets("denied"), 3U);
  // Revoked: two requests, one warning, ten minutes of rest.
  server_.set_status("403 Forbidden");
  for (int i = 2; i < 8; ++i) EXPECT_EQ(machine_.fetch(i)->tier, cache::Tier::kBuild);
  EXPECT_EQ(machine_.gets("denied"), 5U);
  machine_.clock.jump(299s);
  EXPECT_EQ(machine_.fetch(8)->tier, cache::Tier::kBuild);
  EXPECT_EQ(machine_.gets("denied"), 5U);
  EXPECT_THAT(log(), Not(Contains(HasSubstr("secret"))));
  EXPECT_THAT(log(), testing::SizeIs(2)) << "one warning each time";
}

}  // namespace
}  // namespace kiln::test
