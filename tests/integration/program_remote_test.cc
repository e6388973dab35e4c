// A remote cache as the program's users meet it: settings and flags, what the documents
// and events say of a hit there, and a job that may not build.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "remote/client/servers.h"
#include "tests/integration/program_machines.h"
#include "tests/support/remote_server.h"

namespace kiln {
namespace {

using nlohmann::json;
using test::operator+;
using testing::AllOf;
using testing::HasSubstr;
using Arguments = test::KilnProgram::Arguments;

const Arguments kWarm{"warm", "--template", "tiny_fwd", "--arch", "9.0"};

class ProgramRemoteTest : public ProgramMachinesTest {
 protected:
  ProgramRemoteTest() {
    make_key("key");
    kiln_.set("KILN_REMOTE_KEYS", place("key.pub"));
    kiln_.set("KILN_REMOTE_SIGN", place("key"));
    kiln_.set("KILN_REMOTE_WAIT", "60s");  // the fake compiler is quicker than a server
  }

  [[nodiscard]] std::string url() const { return server_.address().base; }
  /// One machine builds, and the server has it all.
  void build_elsewhere(const std::string& options = "") {
    use_machine("builder");
    const json report = kiln_.json_of(
        kWarm + Arguments{"--remote", url() + options, "--remote-mode", "rw"});
    EXPECT_EQ(report["compiled"], kObjects);
    EXPECT_EQ(server_.requests("PUT"), kObjects);
    use_machine("node");
  }

  test::RemoteServer server_;
};

TEST_F(ProgramRemoteTest, WhatOneMachineBuildsIsAHitOnTheNext) {
  build_elsewhere();
  kiln_.set("KILN_REMOTE", url());
  const json report = kiln_.json_of(kWarm);
  EXPECT_EQ(report["hits"], kObjects);
  EXPECT_EQ(report["compiled"], 0);
  EXPECT_EQ(report["not_stored"], 0);
  EXPECT_EQ(hits_of_tier(report, "remote"), kObjects);
  EXPECT_EQ(hits_of_tier(kiln_.json_of(kWarm), "disk"), kObjects);
  EXPECT_EQ(kiln_.json_of({"verify"})["checked"], kObjects);
  const auto label = remote::label_of(server_.address());
  const json counters = kiln_.json_of({"stats"})["counters"];
  EXPECT_EQ(counters["remote_hits"], kObjects);
  EXPECT_EQ(counters["remote_requests.get.hit." + label], kObjects);
  EXPECT_THAT(
      kiln_.run({"stats", "--format", "openmetrics"}).out,
      AllOf(HasSubstr("kiln_gets_total{tier=\"disk\"} 6\n"),
            HasSubstr("kiln_gets_total{tier=\"remote\"} 6\n"),
            HasSubstr(fmt::format("kiln_remote_requests_total{{method=\"get\",result="
                                  "\"hit\",server=\"{}\"}} 6\n",
                                  label)),
            HasSubstr("kiln_remote_seconds_count 6\n")));
}

TEST_F(ProgramRemoteTest, TheKeyThatWarmIsGivenSignsItsUploads) {
  kiln_.unset("KILN_REMOTE_SIGN");
  for (const auto& [name, options, more] :
       {std::tuple{"mode", "", Arguments{"--remote-mode", "rw"}},
        std::tuple{"url", ";mode=rw", Arguments{}},
        std::tuple{"push", ";mode=rw", Arguments{"--push"}}}) {
    const test::RemoteServer server;
    const std::string base = server.address().base;
    use_machine(std::string("builder-") + name);
    const json built = kiln_.json_of(
        kWarm + Arguments{"--remote", base + options, "--sign", place("key")} + more);
    EXPECT_EQ(built["compiled"], kObjects) << name;
    EXPECT_GE(server.requests("PUT"), kObjects) << name;
    use_machine(std::string("node-") + name);
    const json report = kiln_.json_of(kWarm + Arguments{"--remote", base});
    EXPECT_EQ(hits_of_tier(report, "remote"), kObjects) << name;
  }
}

TEST_F(ProgramRemoteTest, NothingIsBuiltForAServerThatWouldGetItUnsigned) {
  kiln_.unset("KILN_REMOTE_SIGN");
  const auto finished = [&](const std::string& remote, const Arguments& more = {}) {
    return kiln_.run(kWarm + Arguments{"--remote", remote} + more);
  };
  for (const Arguments& more : {Arguments{}, Arguments{"--dry-run"}}) {
    for (const auto& refused :
         {finished(url(), Arguments{"--remote-mode", "rw"} + more),
          finished(url() + ";mode=rw", more)}) {
      EXPECT_EQ(refused.status, 2) << refused.text();
      EXPECT_THAT(refused.err, AllOf(HasSubstr("unsigned objects"), HasSubstr("--sign"),
                                     HasSubstr(url() + ";unsigned=1")));
    }
  }
  EXPECT_FALSE(std::filesystem::exists(kiln_.cache_dir()));
  EXPECT_EQ(server_.requests("PUT"), 0);
  EXPECT_EQ(finished(url()).status, 0) << "it sends nothing";
  use_machine("trusting");
  EXPECT_EQ(finished(url() + ";mode=rw;unsigned=1").status, 0);
  EXPECT_EQ(server_.requests("PUT"), kObjects);
}

TEST_F(ProgramRemoteTest, EventsSayTierServerRankAndTrace) {
  const auto events_of = [&](const std::string& file) {
    std::vector<json> events;
    std::ifstream lines(place(file));
    for (std::string line; std::getline(lines, line);)
      events.push_back(json::parse(line));
    return events;
  };
  build_elsewhere();
  ASSERT_EQ(kiln_.run(kWarm + Arguments{"--events", place("alone")}).status, 0);
  for (const json& event : events_of("alone")) {
    EXPECT_EQ(event["tier"], "build");
    EXPECT_TRUE(event["server"].is_null());
    EXPECT_FALSE(event.contains("rank"));
    EXPECT_FALSE(event.contains("traceparent"));
  }
  use_machine("other");
  kiln_.set("KILN_REMOTE", url());
  ASSERT_EQ(kiln_.run(kWarm + Arguments{"--events", place("hits")}).status, 0);
  ASSERT_EQ(events_of("hits").size(), std::size_t{kObjects});
  for (const json& event : events_of("hits")) {
    EXPECT_EQ(event["outcome"], "hit");
    EXPECT_EQ(event["tier"], "remote");
    EXPECT_EQ(event["server"], remote::label_of(server_.address()));
  }
  const std::string trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  kiln_.set("SLURM_PROCID", "17");
  kiln_.set("TRACEPARENT", trace);
  ASSERT_EQ(kiln_.run(kWarm + Arguments{"--events", place("job")}).status, 0);
  ASSERT_EQ(events_of("job").size(), std::size_t{kObjects});
  for (const json& event : events_of("job")) {
    EXPECT_EQ(event["rank"], 17);
    EXPECT_EQ(event["traceparent"], trace);
  }
}

TEST_F(ProgramRemoteTest, AJobThatMayNotBuildHitsTheRemoteAndEndsSoonWithoutIt) {
  build_elsewhere();
  kiln_.set("KILN_NO_JIT", "1");
  kiln_.set("KILN_REMOTE", url());
  EXPECT_EQ(hits_of_tier(kiln_.json_of(kWarm), "remote"), kObjects);
  const auto missing =
      kiln_.run({"warm", "--template", "tiny_bwd:dtype=f16", "--arch", "9.0"});
  EXPECT_EQ(missing.status, 3) << missing.text();
  EXPECT_THAT(missing.err,
              HasSubstr("KILN_NO_JIT forbids building the missing kernels"));
  use_machine("other");
  server_.be_silent();
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(kiln_.run(kWarm + Arguments{"--jobs", "8"}).status, 3);
  // The limits of a transfer: too slow for two seconds.
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

TEST_F(ProgramRemoteTest, ADeadServerChangesNoResult) {
  kiln_.unset("KILN_REMOTE_WAIT");
  server_.be_silent();
  kiln_.set("KILN_REMOTE", url());
  const json report = kiln_.json_of(kWarm);
  EXPECT_EQ(report["compiled"], kObjects);
  EXPECT_EQ(report["failed"], 0);
}

TEST_F(ProgramRemoteTest, ARemoteWithoutTrustedKeysIsRefusedAndSaysWhatToDo) {
  kiln_.unset("KILN_REMOTE_KEYS");
  kiln_.set("KILN_REMOTE", url());
  const auto refused = kiln_.run(kWarm);
  EXPECT_EQ(refused.status, 2) << refused.text();
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("KILN_REMOTE: " + url()), HasSubstr("KILN_REMOTE_KEYS"),
                    HasSubstr(";unsigned=1")));
  EXPECT_EQ(kiln_.json_of(kWarm + Arguments{"--remote-mode", "off"})["compiled"],
            kObjects);
  EXPECT_EQ(kiln_.run({"stats"}).status, 0) << "which asks nobody";
  use_machine("other");
  kiln_.set("KILN_REMOTE", url() + ";unsigned=1");
  EXPECT_EQ(kiln_.json_of(kWarm)["compiled"], kObjects);
  EXPECT_EQ(server_.requests(), kObjects);
  EXPECT_EQ(kiln_.run(kWarm + Arguments{"--remote", url(), "--keys", place("key.pub")})
                .status,
            0);
}

TEST_F(ProgramRemoteTest, AnUnsignedObjectIsNoHit) {
  kiln_.unset("KILN_REMOTE_SIGN");
  build_elsewhere(";unsigned=1");
  kiln_.set("KILN_REMOTE", url());
  const json report = kiln_.json_of(kWarm);
  EXPECT_EQ(report["compiled"], kObjects);
  EXPECT_GE(kiln_.json_of({"stats"})["counters"]["remote_rejected.signature"], 1);
}

TEST_F(ProgramRemoteTest, WrongSettingsAreNamed) {
  struct Wrong {
    Arguments flags;
    std::string named;
  };
  for (const auto& [flags, named] : std::vector<Wrong>{
           {{"--remote", "ftp://c/kiln"}, "--remote: "},
           {{"--remote", url() + ";mod=rw"}, "--remote: "},
           {{"--remote", url(), "--remote-mode", "write"}, "--remote-mode: "},
           {{"--remote", url(), "--keys", place("none")}, place("none")}}) {
    const auto done = kiln_.run(kWarm + flags);
    EXPECT_EQ(done.status, 2) << done.text();
    EXPECT_THAT(done.err, HasSubstr(named));
  }
  kiln_.set("KILN_REMOTE_MODE", "both");
  const auto done = kiln_.run(kWarm);
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("KILN_REMOTE_MODE: "));
}

TEST_F(ProgramRemoteTest, ASourceOfMyOwnComesFromTheRemoteToo) {
  const std::string source = kiln_.write("own.cu", test::kTinySource);
  const Arguments compile{"compile", source, "--arch", "9.0"};
  use_machine("builder");
  kiln_.set("KILN_REMOTE", url() + ";mode=rw");
  EXPECT_EQ(kiln_.json_of(compile)["compiled"], 1);
  use_machine("node");
  EXPECT_EQ(hits_of_tier(kiln_.json_of(compile), "remote"), 1);
}

TEST_F(ProgramRemoteTest, ALinkIsAskedForBeforeItsObjectsAreBuilt) {
  kiln_.unset("KILN_NVRTC");
  const std::string first =
      kiln_.write("a.cu",
                  "extern __device__ float twice(float);\n"
                  "extern \"C\" __global__ void k(float* x) { *x = twice(*x); }\n");
  const std::string second =
      kiln_.write("b.cu", "__device__ float twice(float x) { return 2 * x; }\n");
  const Arguments link{"compile", first, second, "--arch", "9.0"};
  use_machine("builder");
  kiln_.set("KILN_REMOTE", url() + ";mode=rw");
  if (kiln_.run(link).err.find("no libnvJitLink") != std::string::npos)
    GTEST_SKIP() << "there is no nvJitLink beside this NVRTC";
  EXPECT_EQ(server_.requests("PUT"), 3);
  const int asked = server_.requests("GET");
  EXPECT_EQ(asked, 3);
  use_machine("node");
  const json report = kiln_.json_of(link);
  EXPECT_EQ(report["entries"][0]["outcome"], "hit");
  EXPECT_EQ(report["entries"][0]["tier"], "remote");
  EXPECT_EQ(server_.requests("GET"), asked + 1);
  EXPECT_EQ(kiln_.json_of({"stats"})["entries"], 1);
}

}  // namespace
}  // namespace kiln
