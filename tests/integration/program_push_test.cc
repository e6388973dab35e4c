// kiln push and pull: objects and packs on their way through a server that may fail.

#include <fmt/format.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <fstream>

#include "tests/integration/program_machines.h"
#include "tests/support/object_server.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"
#include "tests/support/trusted_keys.h"
#include "util/read_file.h"

namespace kiln {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Exchange;
using test::ObjectServer;

const Arguments kTiny{"--template", "tiny_fwd:", "--arch", "9.0"};

class ProgramPushTest : public ProgramMachinesTest {
 protected:
  ProgramPushTest() {
    make_key("ours");
    kiln_.set("KILN_REMOTE", server_.url());
    kiln_.set("KILN_REMOTE_KEYS", place("ours.pub"));
  }

  void warm() {
    kiln_.set("KILN_REMOTE_MODE", "off");
    EXPECT_EQ(kiln_.json_of(Arguments{"warm"} + kTiny)["compiled"], kObjects);
    kiln_.unset("KILN_REMOTE_MODE");
  }
  json push(const Arguments& more = {}, int status = 0) {
    return kiln_.json_of(Arguments{"push", "--sign", place("ours")} + more, status);
  }
  json pull(const Arguments& more = kTiny, int status = 0) {
    return kiln_.json_of(Arguments{"pull"} + more, status);
  }
  std::string pack(const std::string& name = "job.kpack", const Arguments& more = {}) {
    EXPECT_EQ(kiln_.run(Arguments{"pack", "-o", place(name)} + more).status, 0);
    return place(name);
  }

  [[nodiscard]] std::string text_of(const std::string& name) const {
    return read_text_file(place(name), 1U << 20U).value();
  }

  const ObjectServer holder_;  // of no test: a second server
  ObjectServer server_;
};

TEST_F(ProgramPushTest, WhatIsPushedIsPulledOnAnotherMachine) {
  warm();
  const json pushed = push();
  EXPECT_EQ(pushed["objects"], kObjects);
  EXPECT_EQ(pushed["sent"], kObjects);
  EXPECT_EQ(pushed["failed"], 0);
  EXPECT_EQ(pushed["servers"][0]["url"], server_.url());
  EXPECT_THAT(pushed["signed_by"], SizeIs(1));
  EXPECT_THAT(server_.files(), SizeIs(kObjects));
  const json again = push();
  EXPECT_EQ(again["sent"], 0);
  EXPECT_EQ(again["already_there"], kObjects);
  EXPECT_EQ(server_.count("PUT"), kObjects);
  const std::size_t before = server_.count("GET");
  use_machine("node");
  const json pulled = pull();
  EXPECT_EQ(pulled["pulled"], kObjects);
  EXPECT_EQ(pulled["bytes"], pushed["bytes"]);
  EXPECT_EQ(pull()["hits"], kObjects);
  EXPECT_EQ(server_.count("GET") - before, kObjects);
  EXPECT_EQ(kiln_.json_of({"verify"})["checked"], kObjects);
  kiln_.set("KILN_NO_JIT", "1");
  kiln_.set("KILN_REMOTE_MODE", "off");
  EXPECT_EQ(kiln_.json_of(Arguments{"warm"} + kTiny)["hits"], kObjects);
}

TEST_F(ProgramPushTest, APullAsksForSixteenObjectsAtATime) {
  std::atomic<int> now = 0;
  std::atomic<int> most = 0;
  server_.set_fault([&](const Exchange& exchange, const auto&, const auto&) {
    const int seen = ++now;
    for (int known = most; seen > known && !most.compare_exchange_weak(known, seen);) {
    }
    exchange.pause(milliseconds(3));
    --now;
    return false;
  });
  Arguments keys;
  for (int i = 100; i < 300; ++i)
    keys.push_back(std::to_string(i) + std::string(61, 'a'));
  EXPECT_EQ(pull(keys, 1)["missing"], 200);
  EXPECT_LE(most, 16);
  EXPECT_GT(most, 1);
}

TEST_F(ProgramPushTest, FiltersKeysAndRequestsSelectWhatGoes) {
  warm();
  const json entries = kiln_.json_of({"ls"})["entries"];
  const std::string key = entries[0]["key"];
  EXPECT_EQ(push({key.substr(0, 8)})["sent"], 1);
  EXPECT_EQ(push({"--template", "tiny_bwd"})["objects"], 0);
  EXPECT_EQ(push({"--arch", "8.0"})["objects"], 0);
  EXPECT_EQ(push({"--template", "tiny_fwd:dtype=f16", "--arch", "9.0"})["objects"], 2);
  const json lacking =
      push({"--template", "tiny_fwd:dtype=f16", "--arch", "8.0,9.0"}, 1);
  EXPECT_EQ(lacking["failed"], 2);
  EXPECT_EQ(lacking["problems"][0]["error"]["code"], "not_found");
  use_machine("node");
  EXPECT_EQ(pull({key})["pulled"], 1);
  const json missing = pull({std::string(64, 'a'), key}, 1);
  EXPECT_EQ(missing["missing"], 1);
  EXPECT_EQ(missing["hits"], 1);
  EXPECT_EQ(missing["problems"][0]["error"]["code"], "not_found");
}

TEST_F(ProgramPushTest, OnlyWhatATrustedKeySignedIsPulled) {
  warm();
  make_key("theirs");
  EXPECT_EQ(kiln_.json_of({"push", "--sign", place("theirs")})["sent"], kObjects);
  const std::size_t before = server_.count("GET");
  use_machine("node");
  const json refused = pull(kTiny, 1);
  EXPECT_EQ(refused["pulled"], 0);
  EXPECT_EQ(refused["failed"], kObjects);
  EXPECT_EQ(refused["problems"][0]["error"]["code"], "untrusted");
  EXPECT_EQ(server_.count("GET") - before, kObjects) << "not asked for again";
}

TEST_F(ProgramPushTest, WhatNobodyTrustsAnyMoreIsSignedAnew) {
  warm();
  make_key("theirs");
  for (int i = 0; i < 2; ++i) {
    const json pushed = kiln_.json_of({"push", "--sign", place("theirs")});
    EXPECT_EQ(pushed["sent"], i == 0 ? kObjects : 0);
    EXPECT_EQ(pushed["replaced"], 0) << "whoever sends need not trust his own key";
  }
  const json pushed = push();
  EXPECT_EQ(pushed["sent"], kObjects);
  EXPECT_EQ(pushed["replaced"], kObjects);
  EXPECT_EQ(push()["already_there"], kObjects);
  EXPECT_EQ(push({"--replace"})["sent"], kObjects);
  use_machine("node");
  EXPECT_EQ(pull()["pulled"], kObjects);
}

TEST_F(ProgramPushTest, NobodySendsWhatNobodyWouldTake) {
  warm();
  const auto refused = kiln_.run({"push"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--sign"), HasSubstr("unsigned=1")));
  kiln_.set("KILN_REMOTE", server_.url() + ";unsigned=1");
  EXPECT_EQ(kiln_.json_of({"push"})["sent"], kObjects);
  use_machine("node");
  EXPECT_EQ(pull()["pulled"], kObjects);
  use_machine("other");
  kiln_.set("KILN_REMOTE", server_.url());
  EXPECT_EQ(pull(kTiny, 1)["failed"], kObjects);
}

TEST_F(ProgramPushTest, WhoseSignaturesAreTooFewForItsOwnKeysSendsNothing) {
  warm();
  make_key("theirs");
  test::replace_keys(place("both.pub"),
                     text_of("ours.pub") + text_of("theirs.pub") + "signatures 2\n");
  kiln_.set("KILN_REMOTE_KEYS", place("both.pub"));
  const auto refused = kiln_.run({"push", "--sign", place("ours")});
  EXPECT_EQ(refused.status, 2) << refused.text();
  EXPECT_THAT(refused.err, HasSubstr("needs signatures by 2 keys of KILN_REMOTE_KEYS"));
  EXPECT_EQ(server_.count("PUT"), 0U);
}

TEST_F(ProgramPushTest, ATrustedSignatureFileBesideAPackIsSentUnlessSignIsGiven) {
  warm();
  make_key("theirs");
  test::replace_keys(place("both.pub"), text_of("ours.pub") + text_of("theirs.pub"));
  kiln_.set("KILN_REMOTE_KEYS", place("both.pub"));
  const std::string file = pack("job.kpack.zst", {"--sign", place("theirs")});
  const std::string beside = text_of("job.kpack.zst.minisig");
  const auto sent = [&](const Arguments& more = {}) {
    EXPECT_EQ(kiln_.run(Arguments{"push", "--pack", file} + more).status, 0);
    return server_.files().at("/kiln/packs/job.kpack.zst.minisig");
  };
  kiln_.set("KILN_REMOTE_SIGN", place("ours"));
  EXPECT_EQ(sent(), beside);
  EXPECT_NE(sent({"--sign", place("ours")}), beside);
  // One that is trusted no longer is replaced.
  kiln_.set("KILN_REMOTE_KEYS", place("ours.pub"));
  EXPECT_NE(sent(), beside);
}

TEST_F(ProgramPushTest, APackWithTooFewSignaturesIsSentWithAWarning) {
  warm();
  make_key("theirs");
  test::replace_keys(place("both.pub"),
                     text_of("ours.pub") + text_of("theirs.pub") + "signatures 2\n");
  kiln_.set("KILN_REMOTE_KEYS", place("both.pub"));
  const auto sent = kiln_.run({"push", "--pack", pack(), "--sign", place("ours")});
  EXPECT_EQ(sent.status, 0) << sent.text();
  EXPECT_THAT(sent.err, HasSubstr("it needs signatures by 2 trusted keys, and has 1"));
}

TEST_F(ProgramPushTest, WhatIsDamagedHereIsNotSent) {
  warm();
  std::fstream(kiln_.object_files()[0], std::ios::in | std::ios::out).seekp(600) << "x";
  const json report = push({}, 1);
  EXPECT_EQ(report["failed"], 1);
  EXPECT_EQ(report["sent"], kObjects - 1);
}

TEST_F(ProgramPushTest, FailuresAreRepeatedAndARestIsKept) {
  warm();
  std::atomic<int> failures = 0;
  server_.set_fault(
      [&](const Exchange& exchange, const std::string& method, const std::string&) {
        if (method != "PUT" || ++failures > 2)
          return false;
        exchange.answer("503 Service Unavailable", "");
        return true;
      });
  EXPECT_EQ(push()["sent"], kObjects);
  EXPECT_GT(failures, 2);
  // 429 and a second of rest, once: nobody asks meanwhile.
  use_machine("node");
  std::atomic<bool> has_asked = false;
  std::atomic<Clock::rep> rests_until = 0;
  std::atomic<int> too_early = 0;
  server_.set_fault([&](const Exchange& exchange, const std::string&,
                        const std::string&) {
    if (has_asked.exchange(true)) {
      // Requests that were on their way are no mistake.
      const auto left = rests_until.load() - Clock::now().time_since_epoch().count();
      too_early += left > 0 && left < Clock::duration(milliseconds(700)).count();
      return false;
    }
    rests_until = (Clock::now() + seconds(1)).time_since_epoch().count();
    exchange.answer("429 Too Many Requests", "", "Retry-After: 1\r\n");
    return true;
  });
  const auto began = Clock::now();
  EXPECT_EQ(pull()["pulled"], kObjects);
  EXPECT_GE(Clock::now() - began, seconds(1));
  EXPECT_EQ(too_early, 0);
}

TEST_F(ProgramPushTest, ADeadServerIsGivenUpSoon) {
  warm();
  kiln_.set("KILN_REMOTE", "http://127.0.0.1:1/kiln");
  const auto began = Clock::now();
  const auto failed = kiln_.run({"push", "--sign", place("ours")});
  EXPECT_EQ(failed.status, 1) << failed.text();
  EXPECT_THAT(failed.err, HasSubstr("given up after three failures"));
  EXPECT_THAT(failed.err, HasSubstr(": for the same reason\n"));
  EXPECT_EQ(failed.err.find("not asked any more"),
            failed.err.rfind("not asked any more"))
      << failed.err;
  EXPECT_LT(Clock::now() - began, seconds(30));
}

TEST_F(ProgramPushTest, TheSecondServerHasWhatTheFirstLacksOrFailsToSend) {
  warm();
  push();
  use_machine("node");
  kiln_.set("KILN_REMOTE", holder_.url() + " " + server_.url());
  const json pulled = pull();
  EXPECT_EQ(pulled["pulled"], kObjects);
  EXPECT_EQ(pulled["servers"][0]["pulled"], 0);
  EXPECT_EQ(pulled["servers"][1]["pulled"], kObjects);
  use_machine("other");
  kiln_.set("KILN_REMOTE", "http://127.0.0.1:1/kiln " + server_.url());
  EXPECT_EQ(pull()["pulled"], kObjects);
  // Both get what is pushed, but one that is for reading.
  use_machine("node");
  kiln_.set("KILN_REMOTE",
            holder_.url() + " " + server_.url() + " http://127.0.0.1:1/kiln;mode=r");
  const json pushed = push();
  EXPECT_EQ(pushed["sent"], kObjects);
  EXPECT_EQ(pushed["already_there"], kObjects);
  EXPECT_THAT(pushed["servers"], SizeIs(2));
  EXPECT_THAT(holder_.files(), SizeIs(kObjects));
}

TEST_F(ProgramPushTest, NewCredentialsAreReadInTheMiddle) {
  warm();
  const std::string auth = kiln_.write("auth", "bearer old");
  ::chmod(auth.c_str(), 0600);
  std::atomic<int> puts = 0;
  server_.set_fault(
      [&](const Exchange& exchange, const std::string& method, const std::string&) {
        const bool is_old = exchange.head.find("Bearer old") != std::string::npos;
        const int number = method == "PUT" && is_old ? ++puts : 0;
        if (number <= 2)
          return false;
        // In one step, as who renews them would: the program may read them just now.
        const auto renewed = kiln_.write(fmt::format("auth{}", number), "bearer new");
        ::chmod(renewed.c_str(), 0600);
        std::filesystem::rename(renewed, auth);
        exchange.answer("401 Unauthorized", "");
        return true;
      });
  EXPECT_EQ(push({"--auth", auth})["sent"], kObjects);
  EXPECT_GT(puts, 2);
}

TEST_F(ProgramPushTest, NoOutputHasASecret) {
  warm();
  const std::string auth = kiln_.write("auth", "bearer hunter2");
  ::chmod(auth.c_str(), 0600);
  kiln_.set("KILN_LOG", "trace");
  server_.set_fault(
      [&](const Exchange& exchange, const std::string&, const std::string&) {
        exchange.answer("403 Forbidden", "hunter2");
        return true;
      });
  const auto refused = kiln_.run({"push", "--sign", place("ours"), "--auth", auth});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.text(), AllOf(HasSubstr("403"), Not(HasSubstr("hunter2"))));
  EXPECT_THAT(server_.heads(), Each(HasSubstr("Bearer hunter2")));
}

TEST_F(ProgramPushTest, WithoutAServerOrItsProgramNothingIsDone) {
  warm();
  kiln_.unset("KILN_REMOTE");
  for (const char* verb : {"push", "pull"}) {
    const auto none = kiln_.run(Arguments{verb} + kTiny);
    EXPECT_EQ(none.status, 3) << none.text();
    EXPECT_THAT(none.err, HasSubstr("KILN_REMOTE"));
  }
  const auto off = kiln_.run(
      Arguments{"pull", "--remote", server_.url(), "--remote-mode", "off"} + kTiny);
  EXPECT_EQ(off.status, 3);
  EXPECT_THAT(off.err, HasSubstr("--remote-mode"));
  kiln_.set("KILN_REMOTE", server_.url());
  kiln_.set("KILN_WORKER", kiln_.write("elsewhere/kiln-worker", ""));
  const auto missing = kiln_.run({"push", "--sign", place("ours")});
  EXPECT_EQ(missing.status, 3) << missing.text();
  EXPECT_THAT(missing.err, HasSubstr("kiln-remote"));
}

TEST_F(ProgramPushTest, WrongWordsAreRefusedBeforeAnythingIsSent) {
  const auto wrong = [&](const Arguments& words) {
    const auto refused = kiln_.run(words);
    EXPECT_EQ(refused.status, 2) << refused.text();
    return refused.err;
  };
  EXPECT_THAT(wrong({"pull", "abcdef"}), HasSubstr("no whole key"));
  EXPECT_THAT(wrong({"pull", "--pack", "a", std::string(64, 'a')}),
              HasSubstr("exclude each other"));
  EXPECT_THAT(wrong({"push", "--pack", "a", "--arch", "9.0"}),
              HasSubstr("exclude each other"));
  EXPECT_THAT(wrong({"pull", "--pack", "../a"}), HasSubstr("no name of a pack"));
  EXPECT_THAT(wrong({"pull"}), HasSubstr("name the kernels: "));
  EXPECT_THAT(wrong({"pull", "-o", place("x"), std::string(64, 'a')}),
              HasSubstr("-o is for --pack"));
  EXPECT_THAT(wrong({"pull", "--remote", "https://me:pw@c/", "--pack", "a"}),
              AllOf(HasSubstr("--remote"), Not(HasSubstr("pw"))));
  EXPECT_THAT(wrong({"push", "--remote", "https://c;mdoe=rw"}),
              HasSubstr("did you mean 'mode'"));
  EXPECT_THAT(server_.heads(), SizeIs(0));
}

TEST_F(ProgramPushTest, AStopEndsAPushAtOnce) {
  warm();
  server_.set_fault(
      [](const Exchange& exchange, const std::string&, const std::string&) {
        exchange.wait_for_its_end();
        return true;
      });
  auto running = kiln_.start({"push", "--sign", place("ours"), "--json"});
  ASSERT_TRUE(test::eventually(seconds(20), [&] { return server_.count("GET") > 0; }));
  running.signal(SIGINT);
  const auto began = Clock::now();
  const auto stopped = running.finish();
  EXPECT_EQ(stopped.status, 130);
  EXPECT_LT(Clock::now() - began, seconds(8));  // a transfer may take ten
  EXPECT_EQ(stopped.json()["sent"], 0);
}

// Packs.

TEST_F(ProgramPushTest, APackIsOneFileForTheServerAndOneGetForANode) {
  warm();
  pack("job.kpack.zst", {"--sign", place("ours")});
  const json pushed = kiln_.json_of({"push", "--pack", place("job.kpack.zst")});
  EXPECT_EQ(pushed["pack"], "job.kpack.zst");
  EXPECT_EQ(pushed["sent"], 1);
  EXPECT_EQ(server_.files().count("/kiln/packs/job.kpack.zst"), 1U);
  EXPECT_EQ(server_.files().count("/kiln/packs/job.kpack.zst.minisig"), 1U);
  const std::size_t before = server_.count("GET");
  use_machine("node");
  const json pulled = pull({"--pack", "job.kpack.zst"});
  EXPECT_EQ(pulled["stored"], kObjects);
  EXPECT_TRUE(pulled["toolchain"].is_string());
  EXPECT_EQ(server_.count("GET") - before, 1U) << "its signature is in it";
  kiln_.write("kept.kpack.zst.minisig", "of the pack before");
  const json kept = pull({"--pack", "job.kpack.zst", "-o", place("kept.kpack.zst")});
  EXPECT_EQ(kept["objects"], kObjects);
  EXPECT_FALSE(fs::exists(place("kept.kpack.zst.minisig")));
  EXPECT_EQ(server_.count("GET") - before, 2U);
  use_machine("other");
  EXPECT_EQ(
      kiln_.json_of({"unpack", place("kept.kpack.zst"), "--name", "job"})["stored"],
      kObjects);
}

TEST_F(ProgramPushTest, APackSignedByAKeyThatIsTrustedNoLongerMayBeSignedBesideIt) {
  warm();
  make_key("old");
  const Arguments by_old{"--sign", place("old"), "--keys", place("old.pub")};
  for (const char* const name : {"job.kpack", "job.kpack.zst"}) {
    const std::string file = pack(name, by_old);
    EXPECT_EQ(kiln_.json_of({"push", "--pack", file})["sent"], 1);
    use_machine(std::string("refuses-") + name);
    EXPECT_EQ(kiln_.json_of({"pull", "--pack", name}, 1)["error"]["code"], "untrusted");
    EXPECT_EQ(push({"--pack", file})["sent"], 1);
    const std::size_t before = server_.count("GET");
    const json kept = pull({"--pack", name, "-o", place("kept-") + name});
    EXPECT_EQ(kept["objects"], kObjects);
    EXPECT_EQ(server_.count("GET"), before + 2) << "the pack, and its signature";
    use_machine(std::string("node-") + name);
    EXPECT_EQ(
        kiln_.json_of({"unpack", place("kept-") + name, "--name", name})["stored"],
        kObjects);
    kiln_.set("KILN_CACHE_DIR", kiln_.cache_dir());
  }
}

TEST_F(ProgramPushTest, ASignedPackIsCheckedOfAServerThatNeedsNoSignatureToo) {
  warm();
  const std::string file = pack("job.kpack", {"--sign", place("ours")});
  EXPECT_EQ(kiln_.json_of({"push", "--pack", file})["sent"], 1);
  make_key("theirs");
  kiln_.set("KILN_REMOTE", server_.url() + ";unsigned=1");
  kiln_.set("KILN_REMOTE_KEYS", place("theirs.pub"));
  use_machine("node");
  EXPECT_EQ(kiln_.json_of({"pull", "--pack", "job"}, 1)["error"]["code"], "untrusted");
  EXPECT_THAT(kiln_.json_of({"ls"})["entries"], SizeIs(0));
  // Without keys nobody's signature is looked at.
  kiln_.unset("KILN_REMOTE_KEYS");
  const std::size_t before = server_.count("GET");
  EXPECT_EQ(pull({"--pack", "job"})["stored"], kObjects);
  EXPECT_EQ(server_.count("GET"), before + 1);
}

TEST_F(ProgramPushTest, APackNeedsATrustedSignatureUnlessItsServerIsTrusted) {
  warm();
  const std::string unsigned_pack = pack("plain.kpack");
  const std::string signed_later = pack("signed.kpack");
  const auto refused = kiln_.run({"push", "--pack", unsigned_pack});
  EXPECT_EQ(refused.status, 2) << refused.text();
  server_.put("/kiln/packs/plain.kpack",
              read_text_file(unsigned_pack, 1 << 24).value());
  use_machine("node");
  const json none = kiln_.json_of({"pull", "--pack", "plain"}, 1);
  EXPECT_EQ(none["error"]["code"], "untrusted");
  kiln_.set("KILN_REMOTE", server_.url() + ";unsigned=1");
  EXPECT_EQ(pull({"--pack", "plain"})["stored"], kObjects);
  // Signed on its way.
  kiln_.set("KILN_REMOTE", server_.url());
  EXPECT_EQ(push({"--pack", signed_later, "--name", "signed"})["sent"], 1);
  use_machine("other");
  EXPECT_EQ(pull({"--pack", "signed"})["stored"], kObjects);
  // Another pack's signature.
  server_.put("/kiln/packs/plain.kpack.minisig",
              server_.files()["/kiln/packs/signed.kpack.minisig"]);
  server_.put("/kiln/packs/plain.kpack", "KILNPACK" + std::string(5000, 'x'));
  use_machine("third");
  EXPECT_EQ(kiln_.json_of({"pull", "--pack", "plain"}, 1)["error"]["code"],
            "untrusted");
  EXPECT_THAT(kiln_.json_of({"ls"})["entries"], SizeIs(0));
}

TEST_F(ProgramPushTest, APackThatIsMadeMeanwhileIsWaitedFor) {
  warm();
  const std::string file = pack("job.kpack", {"--sign", place("ours")});
  use_machine("node");
  EXPECT_EQ(kiln_.json_of({"pull", "--pack", "job"}, 2)["error"]["code"], "not_found");
  auto waiting = kiln_.start({"pull", "--pack", "job", "--wait", "30", "--json"});
  ASSERT_TRUE(test::eventually(seconds(20), [&] { return server_.count("GET") > 4; }));
  EXPECT_EQ(kiln_.json_of({"push", "--pack", file})["sent"], 1);
  EXPECT_EQ(waiting.finish().json()["stored"], kObjects);
}

TEST_F(ProgramPushTest, ObjectsThatAreBuiltMeanwhileAreWaitedFor) {
  warm();
  auto waiting = [&] {
    use_machine("node");
    return kiln_.start(Arguments{"pull", "--wait", "30", "--json"} + kTiny);
  }();
  ASSERT_TRUE(test::eventually(seconds(20), [&] { return server_.count("HEAD") > 0; }));
  kiln_.set("KILN_CACHE_DIR", kiln_.cache_dir());
  EXPECT_EQ(push()["sent"], kObjects);
  const auto finished = waiting.finish();
  EXPECT_EQ(finished.status, 0) << finished.text();
  EXPECT_EQ(finished.json()["pulled"], kObjects);
}

TEST_F(ProgramPushTest, AWaitEndsAtItsTime) {
  use_machine("node");
  const auto began = Clock::now();
  const json report = pull(kTiny + Arguments{"--wait", "1"}, 1);
  EXPECT_EQ(report["missing"], kObjects);
  EXPECT_GE(Clock::now() - began, seconds(1));
  EXPECT_LT(Clock::now() - began, seconds(10));
}

}  // namespace
}  // namespace kiln
