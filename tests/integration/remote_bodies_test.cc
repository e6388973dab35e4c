// The bodies of transfers: how much of one is taken, where a cut one goes on, and what
// the loss of kiln-remote, or of one transfer, costs the others.

#include <fmt/format.h>
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "tests/integration/remote_transfers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/little_endian.h"

namespace kiln::remote {
namespace {

constexpr std::string_view kMagic = "BODY";

/// A body that says it has so many bytes.
std::string beginning(std::uint64_t size) {
  Bytes bytes;
  append(bytes, as_bytes(kMagic));
  append_le(bytes, size);
  return std::string(as_text(bytes));
}

class RemoteBodiesTest : public RemoteTransferTest {
 protected:
  static Request get_object(const std::string& url) {
    Request request = get(url);
    request.head = {
        .magic = std::string(kMagic), .size_at = kMagic.size(), .most_behind = 100};
    return request;
  }

  /// Of a server that sends so, and then without an end.
  Reply of_endless(const std::string& begin) {
    const FaultServer server([begin](const Exchange& exchange) {
      exchange.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      exchange.send(fmt::format("{:x}\r\n{}\r\n", begin.size(), begin));
      const std::string chunk = "1000\r\n" + std::string(4096, 'x') + "\r\n";
      for (int i = 0; i < 25'000 && !exchange.has_stopped(); ++i) exchange.send(chunk);
      exchange.wait_for_its_end();
      return false;
    });
    return run(get_object(server.url()));
  }

  /// Several at a time, each answered once.
  std::vector<Reply> run_all(const std::vector<Request>& requests) {
    std::vector<std::future<Reply>> replies;
    for (const Request& request : requests) {
      auto promise = std::make_shared<std::promise<Reply>>();
      replies.push_back(promise->get_future());
      start(transfers_, request,  // a second answer would throw
            [promise](Reply reply) { promise->set_value(std::move(reply)); });
    }
    std::vector<Reply> all;
    for (auto& each : replies) {
      const bool has_ended = each.wait_for(seconds(40)) == std::future_status::ready;
      EXPECT_TRUE(has_ended);
      all.push_back(has_ended ? each.get() : Reply{});
    }
    return all;
  }
};

TEST_F(RemoteBodiesTest, NoMoreIsTakenOfABodyThanItsHeadSays) {
  const Reply endless = of_endless(beginning(1000));
  EXPECT_EQ(endless.end, TransferEnd::kTooLarge);
  EXPECT_LE(endless.body_bytes, 1100U + 65536U) << "and what libcurl has at a time";
  EXPECT_EQ(of_endless(beginning(1ULL << 62U)).end, TransferEnd::kTooLarge);
  const FaultServer exact(
      answering("200 OK", beginning(1000) + std::string(1088, 'x')));
  EXPECT_EQ(run(get_object(exact.url())).body.size(), 1100U);
  const FaultServer over(answering("200 OK", beginning(1000) + std::string(1089, 'x')));
  EXPECT_EQ(run(get_object(over.url())).end, TransferEnd::kTooLarge);
}

TEST_F(RemoteBodiesTest, ABodyThatBeginsWronglyIsPassedOnAtOnceForItsReader) {
  const Reply reply = of_endless("<html>");
  EXPECT_EQ(reply.end, TransferEnd::kAnswered);
  EXPECT_EQ(reply.status, 200U);
  EXPECT_TRUE(reply.body.starts_with("<html>"));
  EXPECT_LE(reply.body_bytes, 65536U);
  for (const std::string& whole : {std::string(), std::string("BO"), beginning(5)}) {
    const FaultServer server(answering("200 OK", whole));
    EXPECT_EQ(run(get_object(server.url())).body, whole);
  }
}

TEST_F(RemoteBodiesTest, NoAnswerIsAskedToBeCompressedOrDecompressed) {
  const std::string body = "\x28\xB5\x2F\xFD and no more";
  const FaultServer server(answering("200 OK", body, "Content-Encoding: zstd\r\n"));
  EXPECT_EQ(run(get(server.url())).body, body);
  EXPECT_EQ(run(get_object(server.url())).body, body) << "and it is no object";
  EXPECT_THAT(server.heads(), Each(Not(HasSubstr("Accept-Encoding"))));
}

TEST_F(RemoteBodiesTest, AnErrorPageIsNoBody) {
  const FaultServer server(answering("404 Not Found", "<html>no</html>"));
  EXPECT_EQ(run(get(server.url())).body_bytes, 0U);
  const FaultServer large(answering("404 Not Found", std::string(4'000'000, 'x')));
  const Reply reply = run(get(large.url()));
  EXPECT_EQ(reply.end, TransferEnd::kAnswered) << "its status says enough";
  EXPECT_EQ(reply.status, 404U);
}

TEST_F(RemoteBodiesTest, ABodyThatCannotBeWrittenFailsThatTransferAlone) {
  const FaultServer server([](const Exchange& exchange) {
    exchange.answer("200 OK", exchange.head.starts_with("GET /large ")
                                  ? std::string(100'000, 'x')
                                  : "x");
    return true;
  });
  EXPECT_EQ(run(get(server.url())).body, "x");
  const pid_t helper = helper_pid();
  const rlimit few{.rlim_cur = 1000, .rlim_max = 1000};
  ASSERT_EQ(::prlimit(helper, RLIMIT_FSIZE, &few, nullptr), 0);
  const Reply reply = run(get(server.url("/large")));
  EXPECT_EQ(reply.end, TransferEnd::kBodyFile) << "it is no fault of the server";
  EXPECT_THAT(reply.error, HasSubstr("cannot write a temporary file in "));
  EXPECT_EQ(run(get(server.url())).body, "x");
  EXPECT_EQ(helper_pid(), helper);
}

TEST_F(RemoteBodiesTest, OfAPackTheFirstByteMayBeLateAndTheNextMayNot) {
  const FaultServer server([](const Exchange& exchange) {
    if (exchange.head.starts_with("GET /late "))
      exchange.pause(seconds(3));
    exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npa");
    if (!exchange.head.starts_with("GET /late "))
      exchange.pause(seconds(8));
    exchange.send("ck");
    return true;
  });
  for (const bool grows : {true, false}) {
    Request request = get(server.url("/late"));
    request.limits = {.whole = seconds(20), .slow_for = seconds(1), .grows = grows};
    EXPECT_EQ(run(request).body, grows ? "pack" : "");
    request.url = server.url("/stalls");
    const auto began = Clock::now();
    EXPECT_EQ(run(request).end, TransferEnd::kTimeout);
    EXPECT_LT(Clock::now() - began, seconds(5));
  }
}

TEST_F(RemoteBodiesTest, APutToAFolderRemovesWhatKilledSendersLeftADayAgo) {
  const test::TempDir dir;
  const auto folder = dir.path() / "packs";
  fs::create_directory(folder);
  for (const char* name : {".new-old", ".new-young", "old"})
    std::ofstream(folder / name) << "x";
  const auto then = fs::file_time_type::clock::now() - std::chrono::hours(25);
  fs::last_write_time(folder / ".new-old", then);
  fs::last_write_time(folder / "old", then);
  EXPECT_EQ(run(put("file://" + (folder / "job").native(), "pack")).status, 201U);
  EXPECT_FALSE(fs::exists(folder / ".new-old"));
  EXPECT_TRUE(fs::exists(folder / ".new-young"));
  EXPECT_TRUE(fs::exists(folder / "old"));
}

TEST_F(RemoteBodiesTest, APutToAFolderIsWholeOrNotThere) {
  const test::TempDir dir;
  std::string large;
  large.assign(20'000'000, 'x');
  const std::string url = "file://" + (dir.path() / "new/packs/job").native();
  EXPECT_EQ(run(put(url, large)).status, 201U);
  EXPECT_TRUE(run(get(url)).body == large);
  const Reply refused = run(put("file:///proc/job", large));
  EXPECT_EQ(refused.status, 507U);
  EXPECT_THAT(refused.error, HasSubstr("/proc/"));
  // Wherever it is then.
  transfers_.cancel(start(transfers_, put(url + "-2", large), [](const Reply&) {}));
  EXPECT_TRUE(run(get(url)).body == large);
  for (const auto& each :
       std::filesystem::directory_iterator(dir.path() / "new/packs")) {
    EXPECT_TRUE(each.path().filename().native().starts_with("job")) << each;
    EXPECT_EQ(each.file_size(), large.size());
  }
}

// Where a cut one goes on.

TEST_F(RemoteBodiesTest, ACutAnswerSaysWhereItMayGoOn) {
  const auto cut = [&](const std::string& headers) {
    return of_answer("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n" + headers +
                     "\r\nhalf");
  };
  const Reply strong = cut("ETag: \"a1\"\r\nLast-Modified: yesterday\r\n");
  EXPECT_EQ(strong.end, TransferEnd::kBroken);
  EXPECT_EQ(strong.body_bytes, 4U);
  EXPECT_EQ(strong.validator, "\"a1\"");
  EXPECT_EQ(cut("ETag: W/\"a1\"\r\nLast-Modified: yesterday\r\n").validator,
            "yesterday");
  EXPECT_EQ(cut("ETag: W/\"a1\"\r\n").validator, "");
  EXPECT_EQ(cut("").validator, "");
  EXPECT_EQ(cut("ETag: \"a1\"\r\nContent-Encoding: gzip\r\n").validator, "")
      << "its bytes are not those of the file";
}

TEST_F(RemoteBodiesTest, ARequestThatGoesOnTakesTheRestOrAllOrNothing) {
  const auto go_on = [&](const std::string& status, const std::string& headers,
                         const std::string& body) {
    const FaultServer server(answering(status, body, headers));
    Request request = get(server.url());
    request.body = "half";  // is in the file
    request.resumes_at = 4;
    request.validator = "\"a1\"";
    const Reply reply = run(request);
    EXPECT_THAT(server.heads(), Each(AllOf(HasSubstr("Range: bytes=4-\r\n"),
                                           HasSubstr("If-Range: \"a1\"\r\n"),
                                           Not(HasSubstr("Accept-Encoding")))));
    return reply;
  };
  const std::string tag = "ETag: \"a1\"\r\n";
  const Reply rest =
      go_on("206 Partial Content", tag + "Content-Range: bytes 4-9/10\r\n", " more.");
  EXPECT_EQ(rest.status, 200U) << "as if it had come whole";
  EXPECT_EQ(rest.body, "half more.");
  EXPECT_EQ(go_on("200 OK", tag, "another").body, "another");
  for (const char* const range :
       {"bytes 3-9/10", "bytes 4-8/10", "bytes 4-9/*", "bytes 4-9/", "bytes */10",
        "bytes 4-9/10x", "bytes 4-18446744073709551615/0", "x"}) {
    const Reply wrong =
        go_on("206 Partial Content", fmt::format("{}Content-Range: {}\r\n", tag, range),
              "rest!!");
    EXPECT_EQ(wrong.status, 206U) << range;
    EXPECT_EQ(wrong.body_bytes, 4U) << range;
  }
  EXPECT_EQ(go_on("206 Partial Content", tag, "rest!!").status, 206U);
  EXPECT_EQ(
      go_on("206 Partial Content",
            tag + "Content-Encoding: gzip\r\nContent-Range: bytes 4-9/10\r\n", "rest!!")
          .status,
      206U);
  EXPECT_EQ(go_on("416 Range Not Satisfiable", "", "").status, 416U);
  EXPECT_EQ(go_on("404 Not Found", "", "").status, 404U);
}

TEST_F(RemoteBodiesTest, ATransferThatIsLongSinceItsBodyIsHasTimeForIt) {
  const FaultServer server([](const Exchange& exchange) {
    exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n");
    for (int i = 0; i < 20 && !exchange.has_stopped(); ++i) {
      exchange.send(std::string(100'000, 'x'));
      exchange.pause(milliseconds(50));
    }
    return false;
  });
  Request request = get(server.url());
  request.limits.whole = milliseconds(300);
  EXPECT_EQ(run(request).end, TransferEnd::kTimeout);
  request.limits.grows = true;
  EXPECT_EQ(run(request).body.size(), 2'000'000U);
  request.limits.least_bytes_per_second = 10'000'000;
  request.limits.slow_for = seconds(60);
  EXPECT_EQ(run(request).end, TransferEnd::kTimeout);
}

// What the loss of one costs the others.

TEST_F(RemoteBodiesTest, WhatRanInAKilledHelperIsSentOnceMore) {
  std::atomic<int> killed = 0;
  const FaultServer server([&](const Exchange& exchange) {
    if (exchange.head.starts_with("GET /7 ") && killed++ == 0)
      ::kill(helper_pid(), SIGKILL);
    exchange.pause(milliseconds(200));
    exchange.answer("200 OK", "x");
    return true;
  });
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i)
    requests.push_back(get(server.url(fmt::format("/{}", i))));
  for (const Reply& reply : run_all(requests)) {
    EXPECT_EQ(reply.end, TransferEnd::kAnswered) << reply.error;
    EXPECT_EQ(reply.body, "x");
  }
  EXPECT_EQ(killed, 2);
}

TEST_F(RemoteBodiesTest, WhatRanInAHelperThatStoppedIsSentOnceMore) {
  std::atomic<bool> has_stopped = false;
  const FaultServer server([&](const Exchange& exchange) {
    if (!has_stopped.exchange(true))
      ::kill(helper_pid(), SIGSTOP);
    exchange.answer("200 OK", "x");
    return true;
  });
  Request request = get(server.url());
  request.limits.whole = seconds(30);
  const auto began = Clock::now();
  for (const Reply& reply : run_all(std::vector(4, request)))
    EXPECT_EQ(reply.body, "x") << reply.error;
  EXPECT_LT(Clock::now() - began, seconds(20)) << "a silence, and 5 s for a sign";
}

TEST_F(RemoteBodiesTest, ATransferWhoseTimeIsOverFailsAlone) {
  const FaultServer server([](const Exchange& exchange) {
    exchange.answer("200 OK", "x");
    return true;
  });
  EXPECT_EQ(run(get(server.url())).body, "x");
  const pid_t helper = helper_pid();
  ::kill(helper, SIGSTOP);
  std::promise<Reply> good;
  start(transfers_, get(server.url()), [&](Reply reply) { good.set_value(reply); });
  Request quick = get(server.url());
  quick.limits.whole = milliseconds(100);
  EXPECT_EQ(run(quick).end, TransferEnd::kHelper);
  ::kill(helper, SIGCONT);
  EXPECT_EQ(good.get_future().get().body, "x");
  EXPECT_EQ(helper_pid(), helper) << "it was slow, and is alive";
}

}  // namespace
}  // namespace kiln::remote
