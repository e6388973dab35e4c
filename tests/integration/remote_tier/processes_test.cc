// Processes beside a remote cache: those that share a root, those that fork, and
// kiln-remote, which may be missing, dead, stopped or not what it seems.

#include "tests/support/processes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <mutex>

#include "kiln/version.h"
#include "remote/transfer.h"
#include "tests/integration/remote_tier/machine.h"
#include "tests/support/child_process.h"
#include "util/log.h"

namespace kiln::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kProcesses = 8;

/// With forks: ThreadSanitizer does not follow threads of a child whose parent has
/// some.
class RemoteNodeTest : public testing::Test {
 protected:
  RemoteNodeTest() { fill(server_, 20); }

  /// How many of a node's processes got the object by each way, if all want it now.
  struct Ends {
    std::atomic<int> remote;
    std::atomic<int> built;
    std::atomic<int> waited;
  };
  void run_node(const std::function<int(Machine&, Ends&)>& run) {
    std::vector<ChildProcess> processes;
    for (int i = 0; i < kProcesses; ++i)
      processes.emplace_back([&] {
        Machine machine{{server_.address()}};
        machine.root = root_;
        machine.options.wait = 300ms;
        return run(machine, *ends_);
      });
    for (ChildProcess& process : processes) EXPECT_EQ(process.wait(), 0);
  }
  static int fetch_one(Machine& machine, Ends& ends,
                       std::chrono::milliseconds build_takes) {
    const auto fetched = machine.fetch(1, {.takes = build_takes});
    if (!fetched || as_text(fetched->object->file()) != as_text(object_of(1).file()))
      return 1;
    if (fetched->tier == cache::Tier::kRemote)
      ++ends.remote;
    else if (fetched->tier == cache::Tier::kBuild)
      ++ends.built;
    else
      ++ends.waited;
    return 0;
  }

  const TempDir dir_;
  const std::filesystem::path root_ = dir_.path() / "root";
  RemoteServer server_;
  const SharedWithChildren<Ends> ends_;
};

class RemoteHelperTest : public testing::Test {
 protected:
  RemoteHelperTest() { fill(server_, 20); }
  ~RemoteHelperTest() override { log_to({}); }

  [[nodiscard]] std::filesystem::path script(const std::string& text) const {
    const auto path = dir_.path() / "kiln-remote";
    std::ofstream(path) << "#!/bin/sh\n" << text;
    std::filesystem::permissions(path, std::filesystem::perms(0700));
    return path;
  }

  const TempDir dir_;
  RemoteServer server_;
};

TEST_F(RemoteNodeTest, ThoseOfANodeAskForAKeyOnce) {
  server_.be_late(100ms);
  run_node([](Machine& machine, Ends& ends) { return fetch_one(machine, ends, 60s); });
  EXPECT_EQ(server_.requests(), 1);
  EXPECT_EQ(ends_->remote, 1);
  EXPECT_EQ(ends_->waited, kProcesses - 1);
}

TEST_F(RemoteNodeTest, ThoseOfANodeWaitOnceForADeadServer) {
  server_.be_silent();
  run_node(
      [](Machine& machine, Ends& ends) { return fetch_one(machine, ends, 100ms); });
  EXPECT_EQ(server_.requests(), 1);
  EXPECT_EQ(ends_->built, 1);
  EXPECT_EQ(ends_->waited, kProcesses - 1);
}

TEST_F(RemoteNodeTest, ADeadServerCostsANodeThreeWaitsAndNotEachOfItsProcesses) {
  server_.be_silent();
  // Processes of one machine, one after the other.
  const auto next_process = [&] {
    auto machine = std::make_unique<Machine>(std::vector{server_.address()});
    machine->root = root_;
    machine->options.wait = 300ms;  // a loaded machine sends a request in this time
    return machine;
  };
  int key = 0;
  for (const int kernels : {2, 5, 3}) {
    const auto process = next_process();
    for (int i = 0; i < kernels; ++i)
      EXPECT_EQ(process->fetch(key++)->tier, cache::Tier::kBuild);
  }
  EXPECT_EQ(server_.requests(), 3);
  // Whoever finds it well again tells the others.
  server_.be_honest();
  const auto later = next_process();
  later->clock.jump(31s);
  EXPECT_TRUE(later->hits(key++));
  EXPECT_TRUE(next_process()->hits(key));
}

TEST_F(RemoteNodeTest, WhatAilsKilnRemoteIsNotHeldAgainstTheServer) {
  Machine broken{{server_.address()}};
  broken.root = root_;
  broken.options.helper = [] { return ChildCommand{.path = "/bin/false"}; };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(broken.fetch(i)->tier, cache::Tier::kBuild);
  Machine other{{server_.address()}};
  other.root = root_;
  EXPECT_EQ(other.fetch(5)->tier, cache::Tier::kRemote);
}

TEST_F(RemoteNodeTest, WhatOthersTellOfAServerMayBeAnything) {
  server_.be_silent();
  {
    Machine machine{{server_.address()}};
    machine.root = root_;
    machine.options.wait = 100ms;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(machine.fetch(i));
  }
  const auto folder = root_ / "locks/remote";
  const auto file = std::filesystem::directory_iterator(folder)->path();
  server_.be_honest();
  int key = 3;
  for (const std::string& text :
       {std::string(), std::string("short"), std::string(16, '\xff'),
        std::string(1000, 'x'), std::string(16, '\0')}) {
    std::ofstream(file, std::ios::binary) << text;
    Machine machine{{server_.address()}};
    machine.root = root_;
    EXPECT_EQ(machine.fetch(key++)->tier, cache::Tier::kRemote) << text;
  }
  std::filesystem::remove_all(folder);
  std::ofstream(folder) << "a file in its place";
  Machine machine{{server_.address()}};
  machine.root = root_;
  EXPECT_EQ(machine.fetch(key)->tier, cache::Tier::kRemote);
}

TEST_F(RemoteNodeTest, WithoutABuildNobodyWaitsForTheQuestionsOfAllOthers) {
  server_.be_silent();
  const auto began = Clock::now();
  run_node([](Machine& machine, Ends&) {
    const auto found = machine.find_alone(1);
    return found && !*found ? 0 : 1;
  });
  // One after another they would wait for eight limits of two seconds and more.
  EXPECT_LT(Clock::now() - began, 13s);
}

TEST_F(RemoteNodeTest, AKilledHolderLeavesTheQuestionToTheNext) {
  server_.be_late(500ms);
  const auto run = [&] {
    Machine machine{{server_.address()}};
    machine.root = root_;
    return fetch_one(machine, *ends_, 60s);
  };
  ChildProcess first(run);
  ASSERT_TRUE(eventually(20s, [&] { return server_.requests() == 1; }));
  ChildProcess second(run);
  first.signal(SIGKILL);
  EXPECT_EQ(first.wait(), -SIGKILL);
  EXPECT_EQ(second.wait(), 0);
  EXPECT_EQ(ends_->remote, 1);
  EXPECT_EQ(server_.requests(), 2);
}

TEST_F(RemoteNodeTest, AForkedChildAsksNobodyAndItsParentGoesOn) {
  Machine machine{{server_.address()}};
  machine.options.servers.front().mode = remote::Mode::kReadWrite;
  ASSERT_EQ(machine.fetch(1)->tier, cache::Tier::kRemote);
  ChildProcess child([&] {
    const auto began = Clock::now();
    const auto fetched = machine.fetch(2);
    const auto alone = machine.find_alone(3);
    machine.close();
    return fetched && fetched->tier == cache::Tier::kBuild && alone && !*alone &&
                   Clock::now() - began < 5s
               ? 0
               : 1;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(machine.fetch(4)->tier, cache::Tier::kRemote);
  EXPECT_EQ(server_.requests(), 2);
}

TEST_F(RemoteNodeTest, AProcessThatEndsWithItsServiceOpenStillUploads) {
  const auto run = [&](bool ends_well) {
    auto address = server_.address();
    address.mode = remote::Mode::kReadWrite;
    // Never destroyed, as that of a Python program.
    auto* const machine = new Machine{{address}};
    machine->options.signers = {Machine::signing_key().signer()};
    const bool built =
        machine->fetch(ends_well ? 100 : 101)->tier == cache::Tier::kBuild;
    if (ends_well)
      std::exit(built ? 0 : 1);  // NOLINT(concurrency-mt-unsafe): of a child
    return built ? 0 : 1;
  };
  server_.be_late(50ms);
  ChildProcess(std::bind(run, true)).wait();
  EXPECT_NE(server_.body_of(object_of(100).key()), "");
  // Its own child, or one that is killed, is not waited for.
  EXPECT_EQ(ChildProcess(std::bind(run, false)).wait(), 0);
  EXPECT_EQ(server_.body_of(object_of(101).key()), "");
}

TEST_F(RemoteNodeTest, AForkInMidRequestLeavesBothProcessesWhole) {
  server_.be_late(300ms);
  Machine machine{{server_.address()}};
  machine.builds();
  std::thread asks([&] { EXPECT_EQ(machine.fetch(1)->tier, cache::Tier::kRemote); });
  ASSERT_TRUE(eventually(20s, [&] { return server_.requests() == 1; }));
  ChildProcess child([&] {
    machine.close();
    Machine own{{server_.address()}};
    return own.fetch(2)->tier == cache::Tier::kRemote ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
  asks.join();
}

TEST_F(RemoteHelperTest, WithoutKilnRemoteNobodyIsAskedAndThatIsSaidOnce) {
  std::mutex mutex;
  std::vector<std::string> lines;
  log_to([&](LogLevel, const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  });
  Machine machine{{server_.address()}};
  machine.options.helper = []() -> Result<ChildCommand> {
    return fail(ErrorCode::kUnavailable, "there is no kiln-remote");
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(machine.fetch(i)->tier, cache::Tier::kBuild);
  EXPECT_FALSE(*machine.find_alone(4));
  EXPECT_EQ(server_.requests(), 0);
  EXPECT_THAT(lines, ElementsAre(AllOf(HasSubstr("no remote cache is asked"),
                                       HasSubstr("there is no kiln-remote"))));
}

TEST_F(RemoteHelperTest, WhateverKilnRemoteIsTheBuildIsTheAnswer) {
  std::ofstream(dir_.path() / "hello", std::ios::binary)
      << as_text(encode(remote::FromHelper(remote::HelperHello{"another build"})));
  for (const std::string& text :
       {std::string("exit 1\n"), std::string("exec sleep 100\n"),
        fmt::format("cat {} >&3\nexec sleep 100\n", (dir_.path() / "hello").native()),
        std::string("cat /dev/urandom >&3\n"), std::string("exec cat <&3 >&3\n")}) {
    SCOPED_TRACE(text);
    Machine machine{{server_.address()}};
    machine.options.helper = [path = script(text)] {
      return ChildCommand{.path = path, .name = "remote helper"};
    };
    machine.options.wait = 100ms;
    for (int i = 0; i < 10; ++i) EXPECT_EQ(machine.fetch(i)->tier, cache::Tier::kBuild);
    EXPECT_LE(machine.gets("overtaken") + machine.gets("helper"), 3U);
    const auto began = Clock::now();
    machine.close();
    EXPECT_LT(Clock::now() - began, 5s);
  }
  EXPECT_EQ(server_.requests(), 0);
}

TEST_F(RemoteHelperTest, AStoppedKilnRemoteCostsThreeWaits) {
  Machine machine{{server_.address()}};
  machine.options.wait = 100ms;
  ASSERT_TRUE(machine.hits(0));
  for (const pid_t child : children_of(::getpid())) ::kill(child, SIGSTOP);
  for (int i = 1; i < 10; ++i) EXPECT_EQ(machine.fetch(i)->tier, cache::Tier::kBuild);
  EXPECT_EQ(machine.gets("overtaken"), 3U);
  const auto began = Clock::now();
  machine.close();
  EXPECT_LT(Clock::now() - began, 5s);
  EXPECT_TRUE(children_of(::getpid()).empty());
}

}  // namespace
}  // namespace kiln::test
