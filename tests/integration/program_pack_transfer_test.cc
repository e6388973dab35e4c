// kiln push and pull of packs of any size, over connections that are cut and from
// mirrors of which one is good.

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <sstream>

#include "tests/integration/program_packs.h"
#include "tests/support/namespaces.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln {
namespace {

using std::chrono::seconds;
using test::Exchange;
using test::ObjectServer;

/// Of both processes, whatever the pack's size.
constexpr std::uint64_t kMostMib = 64;
constexpr const char* kPath = "/kiln/packs/job.kpack";

class ProgramPackTransferTest : public ProgramPacksTest {
 protected:
  using Arguments = test::KilnProgram::Arguments;

  json pull(const Arguments& more = {}, int status = 0) {
    Arguments all{"pull", "--pack", "job"};
    all.insert(all.end(), more.begin(), more.end());
    return kiln_.json_of(all, status);
  }
  std::string small_pack() {
    return read_text_file(write_pack("small.kpack", 2), 1U << 24U).value();
  }

  /// Answers each GET of the pack with what `part` makes of the file: it gets the
  /// offset that was asked for, and which request this is.
  void serve_parts(
      const std::string& tag,
      std::function<bool(const Exchange&, std::size_t offset, int request)> part) {
    const auto number = std::make_shared<std::atomic<int>>(0);
    server_.set_fault([=](const Exchange& exchange, const std::string& method,
                          const std::string& path) {
      if (method != "GET" || path != kPath)
        return false;
      std::size_t offset = 0;
      const std::size_t range = exchange.head.find("Range: bytes=");
      if (range != std::string::npos &&
          exchange.head.find("If-Range: " + tag + "\r\n") != std::string::npos)
        offset = std::stoul(exchange.head.substr(range + 13));
      return part(exchange, offset, ++*number);
    });
  }

  /// All from `offset` on is announced, and so much of it is sent.
  static void send_part(const Exchange& exchange, const std::string& file,
                        const std::string& tag, std::size_t offset, std::size_t most) {
    exchange.send(
        offset == 0
            ? fmt::format("HTTP/1.1 200 OK\r\nETag: {}\r\nContent-Length: {}\r\n\r\n",
                          tag, file.size())
            : fmt::format("HTTP/1.1 206 Partial Content\r\nETag: {}\r\nContent-Range: "
                          "bytes {}-{}/{}\r\nContent-Length: {}\r\n\r\n",
                          tag, offset, file.size() - 1, file.size(),
                          file.size() - offset));
    exchange.send(std::string_view(file).substr(offset, most));
  }
};

TEST_F(ProgramPackTransferTest, APackOf200MibIsPushedAndPulledInLittleMemory) {
  constexpr int kManyObjects = 134;
  const std::string file = write_pack("big.kpack", kManyObjects);
  const auto size = fs::file_size(file);
  EXPECT_GT(size, 200U << 20U);
  const Run pushed = measured({"push", "--pack", file, "--name", "job"});
  EXPECT_EQ(pushed.finished.status, 0) << pushed.finished.text();
  EXPECT_EQ(server_.files().at(kPath).size(), size);
  const Run kept = measured({"pull", "--pack", "job", "-o", place("kept.kpack")});
  EXPECT_EQ(kept.finished.json()["objects"], kManyObjects) << kept.finished.text();
  EXPECT_TRUE(read_file(place("kept.kpack"), 1U << 30U).value() ==
              read_file(file, 1U << 30U).value());
  const Run pulled = measured({"pull", "--pack", "job"});
  EXPECT_EQ(pulled.finished.json()["stored"], kManyObjects) << pulled.finished.text();
  for (const Run& run : {pushed, kept, pulled}) {
    EXPECT_LT(run.kiln_mib + run.helper_mib, kMostMib);
  }
}

TEST_F(ProgramPackTransferTest, OfLargeObjectsFewAreInMemoryAtATime) {
  const std::string file = write_pack("large.kpack", 6, 20U << 20U);
  const Run pushed = measured({"push", "--pack", file, "--name", "job"});
  EXPECT_EQ(pushed.finished.status, 0) << pushed.finished.text();
  const Run unpacked = measured({"pull", "--pack", "job"});
  EXPECT_EQ(unpacked.finished.json()["stored"], 6) << unpacked.finished.text();
  const Run packed = measured({"pack", "-o", place("again.kpack")});
  EXPECT_EQ(packed.finished.json()["objects"], 6) << packed.finished.text();
  const Run sent = measured({"push", "--remote-mode", "rw"});
  EXPECT_EQ(sent.finished.json()["sent"], 6) << sent.finished.text();
  Arguments pull{"pull"};
  const json listed = kiln_.json_of({"ls"});
  for (const json& each : listed["entries"]) pull.push_back(each["key"]);
  use_machine("other");
  const Run fetched = measured(pull);
  EXPECT_EQ(fetched.finished.json()["pulled"], 6) << fetched.finished.text();
  for (const Run& run : {pushed, unpacked, packed, sent, fetched})
    EXPECT_LT(run.kiln_mib + run.helper_mib, kMostMib);
}

/// Lines of `text` that have `part`.
int lines_with(const std::string& part, const std::string& text) {
  std::istringstream lines(text);
  int n = 0;
  for (std::string line; std::getline(lines, line);)
    n += line.find(part) != std::string::npos ? 1 : 0;
  return n;
}

TEST_F(ProgramPackTransferTest, AFullDiskEndsPullsAndPushesAfterThreeObjects) {
  constexpr int kMany = 40;
  kiln_.json_of({"unpack", write_pack("many.kpack", kMany, 1U << 17U)});
  ASSERT_EQ(kiln_.json_of({"push", "--remote-mode", "rw"})["sent"], kMany);
  const json listed = kiln_.json_of({"ls"});
  Arguments pull{"pull"};
  for (const json& each : listed["entries"]) pull.push_back(each["key"]);
  const ObjectServer empty;
  test::in_mount_namespace([&] {
    if (!test::mount_small_disk(place("full"), "size=1m") ||
        !test::mount_small_disk(place("scratch"), "size=64k"))
      return test::kImpossible;
    use_machine("full");
    const auto filled = kiln_.run(pull);
    kiln_.set("TMPDIR", place("scratch"));
    use_machine("other");
    const auto pulled = kiln_.run(pull);
    use_machine("node");
    kiln_.set("KILN_REMOTE", empty.url() + ";unsigned=1");
    const auto pushed = kiln_.run({"push"});
    for (const auto& run : {filled, pulled, pushed}) {
      EXPECT_EQ(run.status, 3) << run.text();
      EXPECT_THAT(run.err, HasSubstr("No space left on device"));
      EXPECT_THAT(run.err, HasSubstr("make room, and the same command again"));
    }
    for (const auto& run : {pulled, pushed}) {
      EXPECT_THAT(run.err, HasSubstr(place("scratch") + " (TMPDIR)"));
      EXPECT_THAT(run.err, Not(HasSubstr("http://"))) << "no server is to blame";
      EXPECT_EQ(lines_with(": ", run.err), 3 + 1)
          << "and a word on the rest" << run.err;
    }
    EXPECT_LT(lines_with(": ", filled.err), kMany / 2) << "some were stored in between";
    return 0;
  });
}

TEST_F(ProgramPackTransferTest, AReasonIsPrintedOnceForObjectsOfDifferentUrls) {
  constexpr int kFew = 5;
  kiln_.json_of({"unpack", write_pack("few.kpack", kFew, 1000)});
  const json listed = kiln_.json_of({"ls"});
  Arguments pull{"pull"};
  for (const json& each : listed["entries"]) {
    const std::string key = each["key"];
    server_.put("/kiln/objects/v1/" + key.substr(0, 2) + "/" + key.substr(2),
                std::string(1000, 'x'));
    pull.push_back(key);
  }
  use_machine("other");
  const auto pulled = kiln_.run(pull);
  EXPECT_EQ(pulled.status, 1);
  EXPECT_EQ(lines_with("http://", pulled.err), 1) << pulled.err;
  EXPECT_EQ(lines_with(": for the same reason", pulled.err), kFew - 1) << pulled.err;
}

TEST_F(ProgramPackTransferTest, AnUnpackThatIsStoppedSaysSoAndGoesOnFromThere) {
  constexpr int kManyObjects = 500;
  const std::string file = write_pack("many.kpack", kManyObjects, 1000);
  kiln_.set("KILN_CACHE_DIR", kiln_.cache_dir());
  auto running = kiln_.start({"unpack", file});
  ASSERT_TRUE(
      test::eventually(seconds(20), [&] { return !kiln_.object_files().empty(); }));
  running.signal(SIGINT);
  const auto stopped = running.finish();
  EXPECT_EQ(stopped.status, 130);
  EXPECT_THAT(stopped.out,
              HasSubstr("since the program was stopped: the same command"));
  const auto stored = kiln_.object_files().size();
  EXPECT_LT(stored, kManyObjects);
  EXPECT_EQ(kiln_.json_of({"unpack", file})["already_there"], stored);
}

TEST_F(ProgramPackTransferTest, AnObjectMayTakeLongerThanAJobWaitsForIt) {
  kiln_.json_of({"unpack", write_pack("one.kpack", 1)});
  const std::string key = kiln_.json_of({"ls"})["entries"][0]["key"];
  EXPECT_EQ(kiln_.json_of({"push", key, "--remote-mode", "rw"})["sent"], 1);
  server_.set_fault([this](const Exchange& exchange, const std::string& method,
                           const std::string& path) {
    const auto files = server_.files();
    const auto found = files.find(path);
    if (method != "GET" || found == files.end())
      return false;
    const std::string_view body = found->second;
    exchange.send(
        fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.size()));
    constexpr std::size_t kParts = 22;
    const std::size_t part = body.size() / kParts + 1;
    for (std::size_t at = 0; at < body.size(); at += part) {
      exchange.pause(std::chrono::milliseconds(500));
      exchange.send(body.substr(at, part));
    }
    return true;
  });
  use_machine("other");
  EXPECT_EQ(kiln_.json_of({"pull", key})["pulled"], 1);
}

TEST_F(ProgramPackTransferTest, APushIsGivenUpAfterThreeTries) {
  server_.set_fault(
      [](const Exchange& exchange, const std::string& method, const std::string& path) {
        if (method != "PUT" || path != kPath)
          return false;
        exchange.answer("503 Service Unavailable", "");
        return true;
      });
  const auto pushed = kiln_.run({"push", "--pack", write_pack("job.kpack", 2)});
  EXPECT_NE(pushed.status, 0);
  EXPECT_EQ(server_.count("PUT"), 3U) << pushed.text();
}

TEST_F(ProgramPackTransferTest, ALargeFileThatIsNoPackIsRefusedAfterOneRequest) {
  std::string random(300U << 20U, 'x');
  random.replace(0, 8, "no pack!");
  server_.put(kPath, std::move(random));
  const Run run = measured({"pull", "--pack", "job"});
  EXPECT_EQ(run.finished.status, 1);
  EXPECT_THAT(run.finished.text(), HasSubstr("does not begin as a pack does"));
  EXPECT_LT(run.kiln_mib + run.helper_mib, kMostMib);
  EXPECT_EQ(server_.count("GET"), 1U);
}

TEST_F(ProgramPackTransferTest, APackIsNotFetchedWhereNothingCanBeStored) {
  server_.put(kPath, small_pack());
  kiln_.set("KILN_CACHE_DIR", "/proc/kiln");
  const auto refused = kiln_.run({"pull", "--pack", "job"});
  EXPECT_EQ(refused.status, 3);
  EXPECT_THAT(refused.err, HasSubstr("nothing can be stored: mkdir /proc/kiln"));
  EXPECT_EQ(server_.count("GET"), 0U);
  EXPECT_EQ(pull({"-o", place("kept.kpack")})["objects"], 2);
}

TEST_F(ProgramPackTransferTest, APullGoesOnWhereItWasCut) {
  const std::string file = small_pack();
  serve_parts("\"a\"", [&](const Exchange& exchange, std::size_t offset, int request) {
    send_part(exchange, file, "\"a\"", offset,
              request < 3 ? 1'000'000 : std::string::npos);
    return true;
  });
  EXPECT_EQ(pull()["stored"], 2);
  ASSERT_EQ(server_.count("GET"), 3U);
  EXPECT_THAT(server_.heads()[2], AllOf(HasSubstr("Range: bytes=2000000-\r\n"),
                                        HasSubstr("If-Range: \"a\"")));
}

TEST_F(ProgramPackTransferTest, APullIsGivenUpAfterThreeTries) {
  const std::string file = small_pack();
  serve_parts("\"a\"", [&](const Exchange& exchange, std::size_t offset, int) {
    send_part(exchange, file, "\"a\"", offset, 1000);
    return true;
  });
  EXPECT_EQ(pull({"-o", place("kept.kpack")}, 3)["error"]["code"], "unavailable");
  EXPECT_EQ(server_.count("GET"), 3U);
  EXPECT_FALSE(fs::exists(place("kept.kpack")));
}

TEST_F(ProgramPackTransferTest, AWaitTriesAPackThatBreaksOffThreeTimesAndNoMore) {
  const std::string file = small_pack();
  serve_parts("\"a\"", [&](const Exchange& exchange, std::size_t offset, int) {
    send_part(exchange, file, "\"a\"", offset, 1000);
    return true;
  });
  const auto began = Clock::now();
  EXPECT_EQ(pull({"--wait", "60"}, 3)["error"]["code"], "unavailable");
  EXPECT_EQ(server_.count("GET"), 3U);
  EXPECT_LT(Clock::now() - began, seconds(40));
}

TEST_F(ProgramPackTransferTest, APackThatChangesAmidAPullIsFetchedAnew) {
  const std::string file = small_pack();
  const std::string old = file.substr(0, 2'000'000);
  for (const bool has_ranges : {true, false}) {
    use_machine(has_ranges ? "ranges" : "none");
    serve_parts("\"new\"",
                [&](const Exchange& exchange, std::size_t offset, int request) {
                  if (request == 1)
                    send_part(exchange, file, "\"old\"", 0, 500'000);
                  else
                    send_part(exchange, file, "\"new\"", has_ranges ? offset : 0,
                              std::string::npos);
                  return true;
                });
    EXPECT_EQ(pull()["stored"], 2);
  }
}

TEST_F(ProgramPackTransferTest, TheFirstMirrorWithAGoodPackCounts) {
  make_key("ours");
  kiln_.set("KILN_REMOTE_KEYS", place("ours.pub"));
  use_machine("builder");
  kiln_.set("KILN_REMOTE_MODE", "off");
  EXPECT_EQ(
      kiln_.json_of({"warm", "--template", "tiny_fwd:", "--arch", "9.0"})["compiled"],
      kObjects);
  ASSERT_EQ(kiln_.run({"pack", "-o", place("plain.kpack")}).status, 0);
  ASSERT_EQ(
      kiln_.run({"pack", "-o", place("job.kpack"), "--sign", place("ours")}).status, 0);
  kiln_.unset("KILN_REMOTE_MODE");
  const std::string good = read_text_file(place("job.kpack"), 1U << 24U).value();
  std::string poisoned = good;
  poisoned[poisoned.size() / 2] ^= 1;
  poisoned[100] ^= 1;
  ObjectServer second;
  second.put(kPath, good);
  kiln_.set("KILN_REMOTE", server_.url() + " " + second.url());
  int n = 0;
  for (const std::string& bad :
       {good.substr(0, good.size() / 2), poisoned, std::string("<html>"),
        read_text_file(place("plain.kpack"), 1U << 24U).value(), std::string()}) {
    server_.put(kPath, bad);
    use_machine(fmt::format("node-{}", ++n));
    const auto run = kiln_.run({"pull", "--pack", "job", "--json"});
    EXPECT_EQ(run.status, 0) << n << run.text();
    EXPECT_EQ(run.json()["stored"], kObjects) << n;
  }
  // None is good: the lie is said, and not that another server has none.
  const ObjectServer empty;
  kiln_.set("KILN_REMOTE", server_.url() + " " + empty.url());
  server_.put(kPath, poisoned);
  use_machine("last");
  EXPECT_EQ(pull({}, 1)["error"]["code"], "corrupt");
  EXPECT_EQ(pull({"--wait", "1"}, 1)["error"]["code"], "corrupt")
      << "after all, the other may have it yet";
}

TEST_F(ProgramPackTransferTest, AWaitIsForServersThatAreNotUpYetToo) {
  const std::string file = small_pack();
  std::atomic<int> failures = 0;
  server_.set_fault(
      [&](const Exchange& exchange, const std::string& method, const std::string&) {
        if (method != "GET" || failures >= 2)
          return false;
        if (++failures % 2 == 0)
          exchange.answer("503 Service Unavailable", "");
        else
          exchange.reset();
        return true;
      });
  kiln_.set("KILN_REMOTE",
            "http://127.0.0.1:1/kiln;unsigned=1 " + server_.url() + ";unsigned=1");
  server_.put(kPath, file);
  EXPECT_EQ(pull({"--wait", "60"})["stored"], 2);
  use_machine("other");
  kiln_.set("KILN_REMOTE", "http://127.0.0.1:1/kiln;unsigned=1");
  const auto began = Clock::now();
  EXPECT_EQ(pull({"--wait", "1"}, 3)["error"]["code"], "unavailable");
  EXPECT_GE(Clock::now() - began, seconds(1));
}

}  // namespace
}  // namespace kiln
