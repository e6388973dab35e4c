// What is built here goes to a remote cache in the background, and nobody waits for it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/remote_tier/machine.h"
#include "tests/support/processes.h"

namespace kiln::test {
namespace {

using Clock = std::chrono::steady_clock;

class UploadsTest : public testing::Test {
 protected:
  /// A machine that builds, and signs what it uploads.
  [[nodiscard]] Machine& builder() {
    if (builder_ == nullptr) {
      builder_ = std::make_unique<Machine>(written(server_));
      builder_->options.signers = {Machine::signing_key().signer()};
    }
    return *builder_;
  }
  static std::vector<remote::ServerAddress> written(const RemoteServer& server) {
    remote::ServerAddress address = server.address();
    address.mode = remote::Mode::kReadWrite;
    return {address};
  }
  [[nodiscard]] std::uint64_t puts(const std::string& result) {
    return builder().counted("remote_requests.put." + result + "." +
                             remote::label_of(server_.address()));
  }
  void be_silent_to(const std::string& method) {
    server_.set_fault([method](const Exchange& exchange) {
      if (!exchange.head.starts_with(method))
        return false;
      exchange.wait_for_its_end();
      return true;
    });
  }

  RemoteServer server_;

 private:
  std::unique_ptr<Machine> builder_;
};

TEST_F(UploadsTest, WhatOneMachineBuildsEveryOtherHas) {
  for (int i = 0; i < 5; ++i) ASSERT_EQ(builder().fetch(i)->tier, cache::Tier::kBuild);
  builder().close();
  Machine other{{server_.address()}};
  for (int i = 0; i < 5; ++i) {
    const auto fetched = other.fetch(i);
    ASSERT_TRUE(fetched);
    EXPECT_EQ(fetched->tier, cache::Tier::kRemote);
  }
  EXPECT_EQ(server_.requests("PUT"), 5);
  EXPECT_EQ(puts("stored"), 5U);
  EXPECT_EQ(builder().counted("uploads_dropped"), 0U);
  EXPECT_EQ(server_.body_of(object_of(1).key()),
            signed_body(object_of(1), Machine::signing_key()));
}

TEST_F(UploadsTest, WhatTheServerHasIsNotSentAgain) {
  // It comes there while this machine builds it.
  server_.set_fault([](const Exchange& exchange) {
    if (!exchange.head.starts_with("GET "))
      return false;
    exchange.answer("404 Not Found", "");
    return true;
  });
  fill(server_, 3);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(builder().fetch(i)->tier, cache::Tier::kBuild);
  builder().close();
  EXPECT_EQ(server_.requests("HEAD"), 3);
  EXPECT_EQ(server_.requests("PUT"), 0);
  EXPECT_EQ(builder().counted("uploads_dropped"), 0U);
}

/// Ways in which a server's object is bad.
std::vector<std::pair<const char*, std::string>> objects_gone_bad() {
  const std::string good = signed_body(object_of(0), Machine::signing_key());
  const std::string poisoned =
      signed_body(object_of(0, "\177ELF of somebody else"), Machine::signing_key());
  std::string flipped = good;
  flipped[300] ^= 1;
  std::string under_our_name = poisoned;  // with the signature of the good one
  under_our_name.replace(poisoned.size() - 92, 92, good, good.size() - 92, 92);
  return {{"empty", ""},
          {"cut", good.substr(0, good.size() / 2)},
          {"without the end of its signature", good.substr(0, good.size() - 1)},
          {"flipped", flipped},
          {"unsigned", std::string(as_text(object_of(0).file()))},
          {"with another's signature", under_our_name},
          {"of another key", signed_body(object_of(77), Machine::signing_key())},
          {"a page", "<html>no</html>"}};
}

TEST_F(UploadsTest, ABadObjectIsReplacedByWhoWasRefusedItAndBuiltIt) {
  const std::string good = signed_body(object_of(0), Machine::signing_key());
  for (const auto& [name, body] : objects_gone_bad()) {
    SCOPED_TRACE(name);
    RemoteServer server;
    server.put(object_of(0).key(), body);
    Machine machine(written(server));
    machine.options.signers = {Machine::signing_key().signer()};
    ASSERT_EQ(machine.fetch(0)->tier, cache::Tier::kBuild);
    machine.close();
    EXPECT_EQ(server.requests("PUT"), 1);
    EXPECT_EQ(server.requests("HEAD"), 0) << "it is known to be there";
    EXPECT_EQ(server.body_of(object_of(0).key()), good);
    EXPECT_EQ(machine.counted("uploads_dropped"), 0U);
    Machine other{{server.address()}};
    EXPECT_TRUE(other.hits(0));
  }
}

TEST_F(UploadsTest, ABadObjectIsReplacedOnceByAProcess) {
  server_.put(object_of(0).key(), "");
  ASSERT_EQ(builder().fetch(0)->tier, cache::Tier::kBuild);
  ASSERT_TRUE(eventually(10s, [&] { return puts("stored") == 1; }));
  // Somebody spoils it again, and this machine loses its own.
  server_.put(object_of(0).key(), "");
  ASSERT_TRUE(builder().cache().remove(object_of(0).key()));
  ASSERT_EQ(builder().fetch(0)->tier, cache::Tier::kBuild);
  builder().close();
  EXPECT_EQ(server_.requests("PUT"), 1);
  EXPECT_EQ(server_.requests("HEAD"), 1);
}

TEST_F(UploadsTest, WhoWouldNotBelieveItsOwnSignatureReplacesNothing) {
  server_.put(object_of(0).key(), "");
  const PrivateKey stranger = PrivateKey::generate().value();
  builder().options.signers = {stranger.signer()};
  ASSERT_EQ(builder().fetch(0)->tier, cache::Tier::kBuild);
  builder().close();
  EXPECT_EQ(server_.requests("PUT"), 0);
}

TEST_F(UploadsTest, WhatKeysHaveSignedThatAreUnknownHereStaysForADay) {
  const std::string theirs = signed_body(object_of(0), PrivateKey::generate().value());
  const auto puts_where = [&](const std::string& headers) {
    RemoteServer server;
    server.set_fault([&](const Exchange& exchange) {
      if (!exchange.head.starts_with("GET "))
        return false;
      exchange.answer("200 OK", theirs, headers);
      return true;
    });
    server.put(object_of(0).key(), theirs);
    Machine machine(written(server));
    machine.options.signers = {Machine::signing_key().signer()};
    EXPECT_EQ(machine.fetch(0)->tier, cache::Tier::kBuild);
    machine.close();
    return server.requests("PUT");
  };
  const std::string now = "Date: Tue, 10 Nov 2026 12:00:00 GMT\r\n";
  EXPECT_EQ(puts_where(now), 0) << "nobody knows how old it is";
  EXPECT_EQ(puts_where(now + "Last-Modified: Mon, 09 Nov 2026 12:00:01 GMT\r\n"), 0);
  EXPECT_EQ(puts_where(now + "Last-Modified: Fri, 13 Nov 2026 12:00:00 GMT\r\n"), 0);
  EXPECT_EQ(puts_where(now + "Last-Modified: Mon, 09 Nov 2026 11:59:59 GMT\r\n"), 1);
}

TEST_F(UploadsTest, WhatIsNotAsItsKeySaysAndWhatCameFromARemoteStayHere) {
  fill(server_, 1);
  ASSERT_EQ(builder().fetch(0)->tier, cache::Tier::kRemote);
  ASSERT_TRUE(builder().fetch(1, {.is_as_keyed = false})->not_stored);
  builder().close();
  EXPECT_EQ(server_.requests("HEAD"), 0);
  EXPECT_EQ(server_.requests("PUT"), 0);
}

TEST_F(UploadsTest, AServerThatIsFullOrTakesNoneIsStillRead) {
  fill(server_, 50);
  for (const char* status : {"507 Insufficient Storage", "413 Payload Too Large",
                             "403 Forbidden", "405 Method Not Allowed", "500 No"}) {
    SCOPED_TRACE(status);
    server_.set_fault([status](const Exchange& exchange) {
      if (!exchange.head.starts_with("PUT "))
        return false;
      exchange.answer(status, "");
      return true;
    });
    Machine machine(written(server_));
    for (int i = 100; i < 105; ++i)
      ASSERT_EQ(machine.fetch(i)->tier, cache::Tier::kBuild);
    ASSERT_TRUE(eventually(10s, [&] {
      return machine.counted("uploads_dropped") == 5;
    })) << machine.counted("uploads_dropped");
    EXPECT_EQ(machine.fetch(1)->tier, cache::Tier::kRemote);
  }
}

TEST_F(UploadsTest, AtMostSixtyFourWaitAndTheRestIsDroppedAndCounted) {
  be_silent_to("HEAD");
  builder().options.limits.whole = 60s;
  builder().options.limits.slow_for = 60s;
  ASSERT_TRUE(builder().fetch(0));
  ASSERT_TRUE(eventually(10s, [&] { return server_.requests("HEAD") == 1; }));
  for (int i = 1; i < 100; ++i) ASSERT_TRUE(builder().fetch(i));
  // One is being sent.
  EXPECT_EQ(builder().counted("uploads_dropped"), 35U);
  const auto began = Clock::now();
  builder().close();
  EXPECT_LT(Clock::now() - began, 20s);
  EXPECT_GT(Clock::now() - began, 4s);
  EXPECT_EQ(builder().counted("uploads_dropped"), 100U);
}

TEST_F(UploadsTest, AServerThatTakesNoUploadsCostsTheEndOfAProcessNoWait) {
  server_.set_fault([](const Exchange& exchange) {
    if (!exchange.head.starts_with("HEAD "))
      return false;
    exchange.reset();
    return true;
  });
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(builder().fetch(i));
  const auto began = Clock::now();
  builder().close();
  EXPECT_LT(Clock::now() - began, 3s);
  EXPECT_EQ(builder().counted("uploads_dropped"), 30U);
  // Then it is left alone.
  EXPECT_EQ(builder().counted("remote_requests.head.broken." +
                              remote::label_of(server_.address())),
            3U);
}

TEST_F(UploadsTest, AServerThatIsSlowToTakeThemHoldsUpNoBuild) {
  be_silent_to("PUT");
  builder().options.limits.whole = 1000ms;
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(builder().fetch(i));
  EXPECT_EQ(server_.requests("GET"), 8);
  EXPECT_LT(server_.requests("PUT"), 3) << "as many as are sent in the end";
  builder().close();
  EXPECT_EQ(puts("timeout"), 3U);  // then it is left alone, though it answers HEAD
  EXPECT_EQ(builder().counted("uploads_dropped"), 8U);
}

TEST_F(UploadsTest, AHalfWrittenUploadIsNeverAnObject) {
  // The server keeps the half of what it is sent, and says that all is well.
  server_.set_fault([&](const Exchange& exchange) {
    if (!exchange.head.starts_with("PUT "))
      return false;
    server_.put(object_of(1).key(), exchange.body.substr(0, exchange.body.size() / 2));
    exchange.answer("201 Created", "");
    return true;
  });
  ASSERT_TRUE(builder().fetch(1));
  builder().close();
  server_.be_honest();
  Machine other{{server_.address()}};
  EXPECT_EQ(other.fetch(1)->tier, cache::Tier::kBuild);
  EXPECT_EQ(other.gets("rejected"), 1U);
}

TEST_F(UploadsTest, EachServerThatIsWrittenGetsThem) {
  RemoteServer second;
  RemoteServer read;
  auto servers = written(server_);
  servers.push_back(read.address());
  servers.push_back(written(second).front());
  Machine machine(servers);
  machine.options.signers = {Machine::signing_key().signer()};
  server_.set_fault([](const Exchange& exchange) {
    if (!exchange.head.starts_with("PUT "))
      return false;
    exchange.answer("507 Insufficient Storage", "");
    return true;
  });
  ASSERT_TRUE(machine.fetch(1));
  machine.close();
  EXPECT_EQ(read.requests("PUT"), 0);
  EXPECT_NE(second.body_of(object_of(1).key()), "");
  EXPECT_EQ(machine.counted("uploads_dropped"), 1U);
}

}  // namespace
}  // namespace kiln::test
