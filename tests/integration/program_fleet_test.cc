// kiln warm --push and --pull: machines that build once what all of them need.

#include <chrono>
#include <filesystem>

#include "tests/integration/program_machines.h"
#include "tests/support/object_server.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using std::chrono::seconds;

const Arguments kAsked{"--template", "tiny_fwd", "--arch", "9.0"};

class ProgramFleetTest : public ProgramMachinesTest {
 protected:
  ProgramFleetTest() { kiln_.set("KILN_REMOTE", server_.url() + ";unsigned=1"); }

  test::Running start(const std::string& cache, const Arguments& more) {
    use_machine(cache);
    return kiln_.start(Arguments{"warm", "--json"} + kAsked + more);
  }
  json warm(const std::string& cache, const Arguments& more, int status = 0) {
    use_machine(cache);
    return kiln_.json_of(Arguments{"warm"} + kAsked + more, status);
  }

  test::ObjectServer server_;
};

TEST_F(ProgramFleetTest, ShardsBuildEachKeyOnceAndAllHaveAll) {
  std::vector<test::Running> machines;
  for (int i = 0; i < 3; ++i) {
    const auto shard = std::to_string(i);
    machines.push_back(start(
        "node" + shard, {"--shard", shard + "/3", "--push", "--pull", "--wait", "60"}));
  }
  int compiled = 0;
  for (test::Running& machine : machines) {
    const auto ended = machine.finish();
    ASSERT_EQ(ended.status, 0) << ended.text();
    const json report = ended.json();
    EXPECT_EQ(report["requested"], kObjects);
    EXPECT_EQ(report["failed"], 0);
    EXPECT_EQ(report["pull"]["missing"], 0);
    EXPECT_EQ(report["pull"]["pulled"], report["shard"]["elsewhere"]);
    EXPECT_EQ(hits_of_tier(report, "remote"), report["pull"]["pulled"]);
    EXPECT_EQ(report["push"]["sent"], report["compiled"]);
    compiled += report["compiled"].get<int>();
  }
  EXPECT_EQ(compiled, kObjects);
  EXPECT_THAT(server_.files(), SizeIs(kObjects));
  kiln_.set("KILN_REMOTE_MODE", "off");
  kiln_.set("KILN_NO_JIT", "1");
  for (const char* node : {"node0", "node1", "node2"})
    EXPECT_EQ(hits_of_tier(warm(node, {}), "disk"), kObjects);
}

TEST_F(ProgramFleetTest, WhatADeadShardOwesIsBuiltAfterTheWaitAndSent) {
  const auto began = Clock::now();
  const json report =
      warm("node", {"--shard", "0/2", "--push", "--pull", "--wait", "1"});
  EXPECT_GE(Clock::now() - began, seconds(1));
  EXPECT_EQ(report["compiled"], kObjects);
  EXPECT_EQ(report["pull"]["missing"], report["shard"]["elsewhere"]);
  EXPECT_GT(report["shard"]["elsewhere"], 0);
  EXPECT_EQ(report["push"]["sent"], kObjects);
}

TEST_F(ProgramFleetTest, WithoutShardsAPullComesFirstAndDoesNotWait) {
  warm("cache", {"--push", "--template", "tiny_fwd:dtype=f16"});
  for (const auto& [path, bytes] : server_.files()) {
    server_.put(path, "");  // one of them is damaged
    break;
  }
  const json report = warm("node", {"--pull"});
  EXPECT_EQ(report["pull"]["pulled"], kObjects - 1);
  EXPECT_EQ(report["pull"]["failed"], 1);
  EXPECT_EQ(report["pull"]["problems"][0]["error"]["code"], "corrupt");
  EXPECT_EQ(hits_of_tier(report, "remote"), kObjects - 1);
  EXPECT_EQ(report["compiled"], 1);
}

TEST_F(ProgramFleetTest, WhatTheServerHasIsNotSentAgain) {
  EXPECT_EQ(warm("cache", {"--push"})["push"]["sent"], kObjects);
  const json again = warm("cache", {"--push"});
  EXPECT_EQ(again["hits"], kObjects);
  EXPECT_EQ(again["push"]["sent"], 0);
  EXPECT_EQ(again["push"]["already_there"], kObjects);
  EXPECT_EQ(server_.count("PUT"), kObjects);
  // What was pulled is not sent to where it comes from.
  const json node = warm("node", {"--pull", "--push"});
  EXPECT_EQ(node["push"]["already_there"], 0);
}

TEST_F(ProgramFleetTest, AServerThatTakesNothingCostsAnExitStatusAndNoKernel) {
  server_.set_fault([](const test::Exchange& exchange, const std::string& method,
                       const std::string&) {
    if (method != "PUT")
      return false;
    exchange.answer("405 Not Allowed", "");
    return true;
  });
  const json report = warm("cache", {"--push"}, 1);
  EXPECT_EQ(report["compiled"], kObjects);
  EXPECT_EQ(report["not_stored"], 0);
  EXPECT_EQ(report["push"]["failed"], kObjects);
}

TEST_F(ProgramFleetTest, AWarmBesideADeadServerBuildsAll) {
  kiln_.set("KILN_REMOTE", "http://127.0.0.1:1/kiln;unsigned=1");
  const auto began = Clock::now();
  const json report = warm("cache", {"--shard", "0/2", "--pull"});
  EXPECT_EQ(report["compiled"], kObjects);
  EXPECT_LT(Clock::now() - began, seconds(30)) << "no wait for a server that is dead";
}

TEST_F(ProgramFleetTest, ADryRunAsksNobody) {
  const json report =
      warm("cache", {"--dry-run", "--shard", "0/2", "--push", "--pull"});
  EXPECT_EQ(report["missing"], kObjects - report["shard"]["elsewhere"].get<int>());
  EXPECT_EQ(server_.heads().size(), 0U);
}

TEST_F(ProgramFleetTest, WordsThatCannotWorkAreRefused) {
  const auto wrong = [&](const Arguments& more, int status) {
    const auto refused = kiln_.run(Arguments{"warm"} + kAsked + more);
    EXPECT_EQ(refused.status, status) << refused.text();
    return refused.err;
  };
  EXPECT_THAT(wrong({"--wait", "3"}, 2), HasSubstr("--wait is for --pull"));
  EXPECT_THAT(wrong({"--pull", "--wait", "soon"}, 2), HasSubstr("soon"));
  kiln_.set("KILN_REMOTE", server_.url());
  EXPECT_THAT(wrong({"--push"}, 2), HasSubstr("--sign"));
  kiln_.unset("KILN_REMOTE");
  EXPECT_THAT(wrong({"--push"}, 3), HasSubstr("KILN_REMOTE"));
  EXPECT_THAT(wrong({"--pull"}, 3), HasSubstr("KILN_REMOTE"));
  EXPECT_FALSE(std::filesystem::exists(kiln_.cache_dir()));
}

TEST_F(ProgramFleetTest, AStopEndsTheWaitForOthers) {
  auto running = start("node", {"--shard", "0/2", "--pull", "--wait", "60"});
  ASSERT_TRUE(test::eventually(seconds(30), [&] { return server_.count("HEAD") > 0; }));
  running.signal(SIGTERM);
  const auto began = Clock::now();
  const auto stopped = running.finish();
  EXPECT_EQ(stopped.status, 143);
  EXPECT_LT(Clock::now() - began, seconds(20));  // it would have waited for a minute
  EXPECT_GT(stopped.json()["compiled"], 0);
}

}  // namespace
}  // namespace kiln
