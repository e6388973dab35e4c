// kiln-remote beside servers that are slow, broken or lie: each transfer ends within
// its limits and says how, and the process that asked goes on.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <utility>

#include "tests/integration/remote_transfers.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/this_library.h"

namespace kiln::remote {
namespace {

TEST_F(RemoteTransferTest, BytesArriveAsTheyAreOverOneConnection) {
  std::string bytes(3'000'000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(i * 7919 >> 3U);
  std::atomic<int> connections = 0;
  const FaultServer server([&, is_first = true](const Exchange& exchange) mutable {
    connections += std::exchange(is_first, false) ? 1 : 0;
    exchange.answer("200 OK", bytes);
    return true;
  });
  for (int i = 0; i < 5; ++i) {
    const Reply reply = run(get(server.url()));
    EXPECT_EQ(reply.end, TransferEnd::kAnswered) << reply.error;
    EXPECT_EQ(reply.status, 200U);
    EXPECT_TRUE(reply.body == bytes);
  }
  EXPECT_EQ(connections, 1);
  EXPECT_THAT(server.heads(), Each(HasSubstr("GET /object HTTP/1.1\r\n")));
}

/// libcurl itself repeats what it sent whole, and gives up what it was sending.
TEST_F(RemoteTransferTest, APutIsRepeatedWhereAKeptConnectionIsResetInItsMiddle) {
  const FaultServer server([](const Exchange& exchange) {
    exchange.answer("201 Created", "");
    exchange.wait_for_its_end();  // or for the next request
    exchange.reset();
    return false;
  });
  Request request = put(server.url(), "");
  // More than sockets hold; it takes seconds in a build with checks.
  request.body.resize(30'000'000, 'x');
  request.limits.whole = seconds(40);
  for (int i = 0; i < 4; ++i) {
    const Reply reply = run(request);
    EXPECT_EQ(reply.end, TransferEnd::kAnswered) << i << ": " << reply.error;
    EXPECT_EQ(reply.status, 201U);
  }
}

/// Not where that was the first request of its connection: then it is the server.
TEST_F(RemoteTransferTest, APutThatIsResetOnANewConnectionIsNotRepeated) {
  std::atomic<int> requests = 0;
  const FaultServer server([&requests](const Exchange& exchange) {
    ++requests;
    exchange.reset();
    return false;
  });
  EXPECT_EQ(run(put(server.url(), "x")).end, TransferEnd::kBroken);
  EXPECT_EQ(requests, 1);
}

TEST_F(RemoteTransferTest, EachStatusIsPassedOn) {
  for (const char* status :
       {"204 No Content", "401 Unauthorized", "403 Forbidden", "404 Not Found",
        "408 Request Timeout", "416 Range Not Satisfiable", "429 Too Many Requests",
        "500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable"}) {
    const Reply reply = of(answering(status, "<html>no</html>", "Retry-After: 7\r\n"));
    EXPECT_EQ(reply.end, TransferEnd::kAnswered) << status;
    EXPECT_EQ(reply.status, std::stoul(status));
    EXPECT_EQ(reply.retry_after_s, 7U);
  }
}

TEST_F(RemoteTransferTest, AServerThatIsSilentSlowOrStallsIsGivenUp) {
  const auto silent = of(silence);
  EXPECT_EQ(silent.end, TransferEnd::kTimeout);
  const auto stalls = of([](const Exchange& exchange) {
    exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" +
                  std::string(200'000, 'x'));
    exchange.wait_for_its_end();
    return false;
  });
  EXPECT_EQ(stalls.end, TransferEnd::kTimeout);
  EXPECT_EQ(stalls.body_bytes, 200'000U) << "a pack goes on from there";
  const auto slow = of([](const Exchange& exchange) {
    exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
    for (int i = 0; i < 1000 && !exchange.has_stopped(); ++i) {
      exchange.send("x");
      exchange.pause(milliseconds(100));
    }
    return false;
  });
  EXPECT_EQ(slow.end, TransferEnd::kTimeout);
}

TEST_F(RemoteTransferTest, ATransferTakesNoLongerThanItsWholeLimit) {
  const FaultServer server([](const Exchange& exchange) {
    exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
    while (!exchange.has_stopped()) {  // fast enough for the other limit
      exchange.send(std::string(100'000, 'x'));
      exchange.pause(milliseconds(20));
    }
    return false;
  });
  Request request = get(server.url());
  request.limits.whole = milliseconds(700);
  const auto began = Clock::now();
  EXPECT_EQ(run(request).end, TransferEnd::kTimeout);
  EXPECT_LT(Clock::now() - began, seconds(4));  // the limit is 5 s otherwise
}

TEST_F(RemoteTransferTest, ACutOffAnswerIsNone) {
  EXPECT_EQ(of_answer("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").end,
            TransferEnd::kBroken);
  EXPECT_EQ(of_answer("").end, TransferEnd::kBroken);
  EXPECT_EQ(
      of_answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel").end,
      TransferEnd::kBroken);
  EXPECT_EQ(
      of_answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n").end,
      TransferEnd::kBroken);
  EXPECT_EQ(of_answer("SSH-2.0-OpenSSH_9.2\r\n").end, TransferEnd::kBroken);
  const auto reset = of([](const Exchange& exchange) {
    exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    exchange.reset();
    return false;
  });
  EXPECT_EQ(reset.end, TransferEnd::kBroken);
  EXPECT_EQ(reset.body, "");
  const auto half_closed = of([](const Exchange& exchange) {
    exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    exchange.end_sending();
    exchange.wait_for_its_end();
    return false;
  });
  EXPECT_EQ(half_closed.end, TransferEnd::kBroken);
}

TEST_F(RemoteTransferTest, ChunksAreAnAnswer) {
  const auto reply = of_answer(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(reply.end, TransferEnd::kAnswered);
  EXPECT_EQ(reply.body, "abcde");
}

TEST_F(RemoteTransferTest, WhatIsLargerThanTheLimitIsNotRead) {
  const auto with_limit = [&](FaultServer::Script script) {
    const FaultServer server(std::move(script));
    Request request = get(server.url());
    request.limits.most_bytes = 1000;
    return run(request);
  };
  const auto announced = with_limit([](const Exchange& exchange) {
    exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n");
    exchange.wait_for_its_end();
    return false;
  });
  EXPECT_EQ(announced.end, TransferEnd::kTooLarge);
  const auto endless = with_limit([](const Exchange& exchange) {
    exchange.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 100; ++i)
      exchange.send("40\r\n" + std::string(64, 'x') + "\r\n");
    exchange.wait_for_its_end();
    return false;
  });
  EXPECT_EQ(endless.end, TransferEnd::kTooLarge);
  EXPECT_EQ(endless.body, "");
  const auto exact = with_limit(answering("200 OK", std::string(1000, 'x')));
  EXPECT_EQ(exact.body.size(), 1000U);
}

TEST_F(RemoteTransferTest, NobodyThereIsSaidSoonAndNotByATimeLimit) {
  std::string gone;
  {
    const FaultServer server([](const Exchange&) { return false; });
    gone = server.url();
  }
  EXPECT_EQ(run(get(gone)).end, TransferEnd::kConnect);
  EXPECT_EQ(run(get("http://kiln.invalid/object")).end, TransferEnd::kConnect);
  EXPECT_NE(run(get("gopher://127.0.0.1/")).end, TransferEnd::kAnswered);
  EXPECT_NE(run(get("")).end, TransferEnd::kAnswered);
}

TEST_F(RemoteTransferTest, AServerThatAcceptsNobodyIsGivenUpAfterTheConnectLimit) {
  // Nobody accepts, and the queue has room for one.
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 0), 0);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::vector<int> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    std::ignore =
        ::connect(clients.back(), reinterpret_cast<sockaddr*>(&address), size);
  }
  const auto began = Clock::now();
  const auto reply =
      run(get(fmt::format("http://127.0.0.1:{}/x", ntohs(address.sin_port))));
  EXPECT_NE(reply.end, TransferEnd::kAnswered);
  EXPECT_LT(Clock::now() - began, seconds(4));  // the whole limit is 5 s
  for (const int each : clients) ::close(each);
  ::close(listener);
}

TEST_F(RemoteTransferTest, CredentialsGoToTheirHostAndNoOther) {
  const FaultServer other(answering("200 OK", "elsewhere"));
  const FaultServer server([&](const Exchange& exchange) {
    if (exchange.head.starts_with("GET /object "))
      exchange.answer("302 Found", "", "Location: /moved\r\n");
    else
      exchange.answer("302 Found", "",
                      "Location: " + other.url("/x", "localhost") + "\r\n");
    return true;
  });
  Request request = get(server.url());
  request.credentials.authorization = "Bearer secret";
  EXPECT_EQ(run(request).body, "elsewhere");
  ASSERT_THAT(server.heads(), SizeIs(2));
  EXPECT_THAT(server.heads(), Each(HasSubstr("Authorization: Bearer secret\r\n")));
  ASSERT_THAT(other.heads(), SizeIs(1));
  EXPECT_THAT(other.heads()[0], Not(HasSubstr("secret")));
}

TEST_F(RemoteTransferTest, ARedirectInACircleEnds) {
  const FaultServer server(answering("302 Found", "", "Location: /object\r\n"));
  EXPECT_EQ(run(get(server.url())).end, TransferEnd::kBroken);
  EXPECT_THAT(server.heads(), SizeIs(4));
}

TEST_F(RemoteTransferTest, NoSettingOfTheMachineChangesWhoIsAsked) {
  const FaultServer proxy(answering("200 OK", "of the proxy"));
  ChildCommand command = helper();
  command.environment = {"http_proxy=" + proxy.url(""), "ALL_PROXY=" + proxy.url("")};
  const FaultServer server(answering("200 OK", "of the server"));
  Transfers transfers(command);
  std::promise<std::string> body;
  start(transfers, get(server.url()), [&](Reply reply) { body.set_value(reply.body); });
  EXPECT_EQ(body.get_future().get(), "of the server");
}

TEST_F(RemoteTransferTest, APutSendsItsBytesAndAHeadAsksForNone) {
  std::promise<std::string> received;
  const FaultServer server([&](const Exchange& exchange) {
    if (exchange.head.starts_with("PUT "))
      received.set_value(exchange.body);
    exchange.send("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    return true;
  });
  const std::string body(1'000'000, '\1');
  EXPECT_EQ(run(put(server.url(), body)).status, 201U);
  EXPECT_TRUE(received.get_future().get() == body);
  EXPECT_THAT(server.heads()[0], HasSubstr("If-None-Match: *\r\n"));
  Request head = get(server.url());
  head.method = Method::kHead;
  EXPECT_EQ(run(head).status, 201U);
  EXPECT_THAT(server.heads()[1], HasSubstr("HEAD /object"));
}

TEST_F(RemoteTransferTest, APutThatIsRefusedOrCutOffSaysSo) {
  for (const char* status : {"412 Precondition Failed", "413 Too Large", "507 Full"}) {
    const FaultServer server([status](const Exchange& exchange) {
      exchange.answer(status, "");
      return false;
    });
    EXPECT_EQ(run(put(server.url(), "bytes")).status, std::stoul(status));
  }
  const FaultServer server([](const Exchange&) { return false; });
  EXPECT_EQ(run(put(server.url(), "bytes")).end, TransferEnd::kBroken);
}

TEST_F(RemoteTransferTest, ManyAtATimeEndEachWithItsOwn) {
  const FaultServer server([](const Exchange& exchange) {
    exchange.answer("200 OK", exchange.head.substr(4, exchange.head.find(" HTTP") - 4));
    return true;
  });
  std::vector<std::future<Reply>> replies;
  for (int i = 0; i < 60; ++i) {
    auto promise = std::make_shared<std::promise<Reply>>();
    replies.push_back(promise->get_future());
    start(transfers_, get(server.url(fmt::format("/{}", i))),
          [promise](Reply reply) { promise->set_value(std::move(reply)); });
  }
  for (int i = 0; i < 60; ++i)
    EXPECT_EQ(replies[static_cast<std::size_t>(i)].get().body, fmt::format("/{}", i));
}

TEST_F(RemoteTransferTest, ACancelledTransferIsNeverReportedAndItsConnectionEnds) {
  std::promise<bool> has_gone;
  std::promise<void> is_there;
  const FaultServer server([&](const Exchange& exchange) {
    is_there.set_value();
    has_gone.set_value(exchange.wait_for_its_end());
    return false;
  });
  std::atomic<bool> is_reported = false;
  const auto id =
      start(transfers_, get(server.url()), [&](Reply) { is_reported = true; });
  is_there.get_future().wait();
  transfers_.cancel(id);
  transfers_.cancel(id);
  transfers_.cancel(12345);
  EXPECT_TRUE(has_gone.get_future().get());
  EXPECT_FALSE(is_reported);
}

// The helper itself.

TEST_F(RemoteTransferTest, AHelperThatIsKilledFailsWhatRunsAndTheNextIsStarted) {
  const FaultServer server([&](const Exchange& exchange) {
    if (exchange.head.starts_with("GET /kill "))
      ::kill(helper_pid(), SIGKILL);
    exchange.answer("200 OK", "x");
    return true;
  });
  for (int i = 0; i < 5; ++i) {
    const auto began = Clock::now();
    const Reply lost = run(get(server.url("/kill")));
    EXPECT_EQ(lost.end, TransferEnd::kHelper);
    EXPECT_THAT(lost.error, HasSubstr("killed by signal 9"));
    EXPECT_LT(Clock::now() - began, seconds(4));
    EXPECT_EQ(run(get(server.url())).body, "x");
  }
}

TEST_F(RemoteTransferTest, AHelperThatIsStoppedIsGivenUpAfterTheLimit) {
  const FaultServer server([&](const Exchange& exchange) {
    if (exchange.head.starts_with("GET /stop "))
      ::kill(helper_pid(), SIGSTOP);
    exchange.answer("200 OK", "x");
    return true;
  });
  Request request = get(server.url("/stop"));
  request.limits.whole = milliseconds(500);
  const auto began = Clock::now();
  EXPECT_EQ(run(request).end, TransferEnd::kHelper);
  EXPECT_LT(Clock::now() - began, seconds(4));
  EXPECT_EQ(run(get(server.url())).body, "x");
}

TEST_F(RemoteTransferTest, ALargeBodyTakesNoMemoryOfTheHelper) {
  std::string large;
  large.assign(64'000'000, 'x');
  const FaultServer server([&](const Exchange& exchange) {
    if (exchange.head.starts_with("GET /large ")) {
      // What it has, and hardly more.
      const rlimit few{.rlim_cur = 1 << 20U, .rlim_max = 1 << 20U};
      EXPECT_EQ(::prlimit(helper_pid(), RLIMIT_AS, &few, nullptr), 0);
    }
    exchange.answer("200 OK", exchange.head.starts_with("GET /large ") ? large : "x");
    return true;
  });
  EXPECT_EQ(run(get(server.url())).body, "x");
  const Reply reply = run(get(server.url("/large")));
  EXPECT_EQ(reply.end, TransferEnd::kAnswered) << reply.error;
  EXPECT_TRUE(reply.body == large);
}

TEST_F(RemoteTransferTest, AHelperThatAlwaysEndsIsNotStartedForEver) {
  Transfers broken({.path = "/bin/false", .name = "remote helper"});
  for (int i = 0; i < 6; ++i) {
    std::promise<Reply> promise;
    start(broken, get("http://127.0.0.1:1/"),
          [&](Reply reply) { promise.set_value(std::move(reply)); });
    const Reply reply = promise.get_future().get();
    EXPECT_EQ(reply.end, TransferEnd::kHelper);
    EXPECT_THAT(reply.error, HasSubstr(i < 3 ? "exited with status 1" : "three times"));
  }
}

TEST_F(RemoteTransferTest, AHelperOfAnotherBuildIsRefusedAndBothAreNamed) {
  const test::TempDir dir;
  const auto path = dir.path() / "old-remote";
  std::ofstream(path) << fmt::format("#!/bin/sh\ncat {} >&3\nexec sleep 20\n",
                                     (dir.path() / "hello").native());
  std::ofstream(dir.path() / "hello", std::ios::binary)
      << as_text(encode(FromHelper(HelperHello{"another build"})));
  std::filesystem::permissions(path, std::filesystem::perms(0700));
  Transfers others({.path = path, .name = "remote helper"});
  std::promise<Reply> promise;
  start(others, get("http://127.0.0.1:1/"),
        [&](Reply reply) { promise.set_value(std::move(reply)); });
  const Reply reply = promise.get_future().get();
  EXPECT_EQ(reply.end, TransferEnd::kHelper);
  EXPECT_THAT(reply.error,
              AllOf(HasSubstr(path.native()), HasSubstr(this_library().native()),
                    HasSubstr("different builds")));
}

TEST_F(RemoteTransferTest, AForkedChildTransfersNothingAndItsParentGoesOn) {
  const FaultServer server(answering("200 OK", "x"));
  EXPECT_EQ(run(get(server.url())).body, "x");
  test::ChildProcess child([&] {
    TransferEnd end = TransferEnd::kAnswered;
    start(transfers_, get(server.url()), [&](const Reply& reply) { end = reply.end; });
    transfers_.cancel(1);
    return end == TransferEnd::kHelper ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(run(get(server.url())).body, "x");
}

TEST_F(RemoteTransferTest, TheHelperEndsWithWhoStartedIt) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const FaultServer server(silence);
  test::ChildProcess host([&] {
    auto* const own = new Transfers(helper());  // never destroyed
    start(*own, get(server.url()), [](const Reply&) {});
    pid_t pid = -1;
    test::eventually(seconds(5), [&] { return (pid = helper_pid()) > 0; });
    std::ignore = ::write(ends[1], &pid, sizeof(pid));
    ::pause();
    return 0;
  });
  pid_t pid = -1;
  ASSERT_EQ(::read(ends[0], &pid, sizeof(pid)), static_cast<ssize_t>(sizeof(pid)));
  ASSERT_GT(pid, 0);
  host.signal(SIGKILL);
  host.wait();
  EXPECT_TRUE(test::eventually(seconds(5), [&] { return !test::is_running(pid); }))
      << "left behind";
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace kiln::remote
