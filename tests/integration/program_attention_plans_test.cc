// kiln attention warm and why, explain with the installed cuDNN, and what the other
// verbs make of plans: through the program, with the real cuDNN.

#include <sys/mount.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/integration/program_warm.h"
#include "tests/support/incomplete_cudnn.h"
#include "tests/support/namespaces.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

const Arguments kWarm{"attention", "warm"};
const Arguments kExplain{"attention", "explain", "--cudnn", "installed"};
const Arguments kWhy{"attention", "why"};
const Arguments kH200{"--profile", "h200"};

/// The flags of a problem that cuDNN builds a plan of in a second.
Arguments small(const std::string& pass = "fwd", const std::string& dqk = "64") {
  return {"--pass", pass,  "--dtype", "bf16", "--batch", "1", "--heads", "4",
          "--sq",   "256", "--skv",   "256",  "--dqk",   dqk, "--mask",  "causal"};
}

std::set<std::string> values_of(const json& entries, const std::string& field) {
  std::set<std::string> values;
  for (const json& each : entries) values.insert(each.at(field).get<std::string>());
  return values;
}

class ProgramAttentionPlansTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto asked =
        kiln_.run(kExplain + Arguments{"--arch", "9.0", "--matrix"} + small());
    ASSERT_EQ(asked.err.find("cannot be used"), std::string::npos) << asked.err;
    if (asked.status == 3)
      GTEST_SKIP() << "there is no cuDNN here: " << asked.err;
    ASSERT_EQ(asked.status, 0) << asked.text();
  }

  /// One sentence, exit status 2, nothing done.
  void expect_wrong(const Arguments& arguments, const std::string& words) {
    const auto finished = kiln_.run(arguments + Arguments{"--json"});
    SCOPED_TRACE(finished.text());
    EXPECT_EQ(finished.status, 2);
    EXPECT_THAT(finished.err, HasSubstr(words));
    EXPECT_LE(std::count(finished.err.begin(), finished.err.end(), '\n'), 2);
    EXPECT_TRUE(finished.json().contains("error"));
    EXPECT_THAT(kiln_.object_files(), IsEmpty());
  }

  void expect_no_setting() {
    const auto finished = kiln_.run(kWarm + kH200 + small());
    EXPECT_EQ(finished.status, 2) << finished.text();
    EXPECT_THAT(finished.err, HasSubstr("KILN_ATTENTION: 'flash'"));
  }

  /// A file: of an H200 in which one property is another.
  std::string changed_profile(const std::string& property, int value) {
    json profile = json::parse(
        std::ifstream(test::paths::source("src/device/profiles/h200.json")));
    profile[property] = value;
    return kiln_.write("changed.json", profile.dump());
  }

  /// What doctor says of the cuDNN that is used.
  json cudnn_check() {
    const json report = kiln_.json_of({"doctor"});
    for (const json& each : report["checks"]) {
      if (each["name"] == "cudnn")
        return each;
    }
    ADD_FAILURE() << report.dump(1);
    return {};
  }
  std::filesystem::path used_cudnn() {
    const auto detail = cudnn_check()["detail"].get<std::string>();
    return detail.substr(0, detail.find(" ("));
  }

  /// Each verb that uses cuDNN says why it cannot, and comes to its own end; a preset's
  /// attention is Kiln's.
  void expect_unusable(const std::filesystem::path& cudnn) {
    const auto why = HasSubstr("cuDNN " + cudnn.native() + " cannot be used: ");
    const auto remedy = HasSubstr("look at LD_LIBRARY_PATH");
    const auto preset = kiln_.run(
        {"warm", "--preset", "llama-3-8b", "--profile", "h100-sxm", "--dry-run"});
    EXPECT_EQ(preset.status, 0) << preset.text();
    EXPECT_THAT(preset.text(), AllOf(why, remedy, HasSubstr("by Kiln's kernels")));
    const json warmed =
        kiln_.json_of(kWarm + kH200 + small() + Arguments{"--dry-run"}, 3);
    EXPECT_THAT(warmed["entries"].at(0)["error"]["message"].get<std::string>(), why);
    for (const Arguments& action : {kExplain, kExplain + Arguments{"--matrix"}, kWhy}) {
      const auto finished = kiln_.run(action + kH200 + small());
      EXPECT_EQ(finished.status, 3) << finished.text();
      EXPECT_THAT(finished.err, AllOf(why, remedy));
    }
    const json check = cudnn_check();
    EXPECT_EQ(check["verdict"], "warn");
    EXPECT_THAT(check["detail"].get<std::string>(), why);
    EXPECT_NE(check["remedy"], "");
  }

  /// The key of the one plan that `warm` with these flags builds.
  std::string warmed(const Arguments& flags) {
    const json report = kiln_.json_of(kWarm + flags);
    EXPECT_EQ(report["compiled"], 1) << report.dump(1);
    return report["entries"].at(0)["key"];
  }

  test::KilnProgram kiln_;
};

TEST_F(ProgramAttentionPlansTest, WarmBuildsBothPassesOfATrainingOnceADevice) {
  const Arguments command =
      kWarm +
      Arguments{"--profile",     "h200",       "--profile", "h100-sxm", "--profile",
                "a100-sxm-80gb", "--training", "--jobs",    "2"} +
      small();
  const json first = kiln_.json_of(command);
  expect_sums(first);
  // The first two devices are one to a plan.
  EXPECT_EQ(first["requested"], 4);
  EXPECT_EQ(first["compiled"], 4);
  EXPECT_TRUE(first["min_driver"].is_null());
  EXPECT_THAT(values_of(first["entries"], "template"),
              UnorderedElementsAre("cudnn_attention_fwd", "cudnn_attention_bwd"));
  EXPECT_THAT(values_of(first["entries"], "device"),
              UnorderedElementsAre("NVIDIA H200", "NVIDIA A100-SXM4-80GB"));
  EXPECT_THAT(values_of(first["entries"], "arch"), UnorderedElementsAre("8.0", "9.0"));
  for (const json& entry : first["entries"]) {
    EXPECT_EQ(entry["outcome"], "compiled");
    EXPECT_EQ(entry["stored"], true);
    EXPECT_TRUE(entry["error"].is_null());
    EXPECT_EQ(entry["params"]["mask"], "causal");
  }
  const json second = kiln_.json_of(command);
  expect_sums(second);
  EXPECT_EQ(second["hits"], 4);
  EXPECT_EQ(values_of(second["entries"], "key"), values_of(first["entries"], "key"));
}

TEST_F(ProgramAttentionPlansTest, ADryRunSaysWhatIsMissingAndLeavesNoTrace) {
  const Arguments dry{"--dry-run"};
  const json two =
      kiln_.json_of(kWarm + kH200 + dry + Arguments{"--preset", "llama-3-8b"});
  EXPECT_EQ(two["missing"], 2);
  for (const json& entry : two["entries"]) {
    EXPECT_EQ(entry["outcome"], "missing");
    EXPECT_EQ(entry["params"]["kv_heads"], "8");
  }
  const json one = kiln_.json_of(
      kWarm + kH200 + dry +
      Arguments{"--preset", "llama-3-8b", "--pass", "fwd", "--batch", "4"});
  ASSERT_EQ(one["missing"], 1);
  EXPECT_EQ(one["entries"][0]["params"]["batch"], "4");
  // Whichever of the published devices a plan can tell apart.
  const json devices =
      kiln_.json_of(kWarm + dry + Arguments{"--arch", "9.0,8.0"} + small());
  EXPECT_EQ(values_of(devices["entries"], "arch"),
            (std::set<std::string>{"8.0", "9.0"}));
  EXPECT_EQ(devices["missing"], devices["requested"]);
  EXPECT_GE(devices["requested"], 3);
  // Both passes of every step, each once.
  const json steps = kiln_.json_of(
      kWarm + kH200 + dry + Arguments{"--cp", "all_gather:2", "--training"} + small());
  EXPECT_EQ(steps["missing"], 8);
  EXPECT_THAT(values_of(steps["entries"], "key"), SizeIs(8));
  EXPECT_EQ(steps["entries"][0]["params"]["mask"], "causal_bottom_right");
  EXPECT_FALSE(std::filesystem::exists(kiln_.cache_dir()));
}

TEST_F(ProgramAttentionPlansTest, APlanIsForADriver) {
  const auto key = [&](const Arguments& more) -> std::string {
    return kiln_
        .json_of(kWarm + kH200 + Arguments{"--dry-run"} + small() + more)["entries"]
        .at(0)["key"];
  };
  EXPECT_EQ(key({"--driver", "13.0"}), key({}));  // the profile's
  EXPECT_NE(key({"--driver", "13.1"}), key({}));
}

TEST_F(ProgramAttentionPlansTest, WhatCudnnDoesNotRunIsKilnsKernel) {
  const Arguments command = kWarm + Arguments{"--profile", "a100-sxm-80gb"};
  const json report = kiln_.json_of(command + small("bwd", "192"));
  expect_sums(report);
  EXPECT_EQ(report["compiled"], 1);
  EXPECT_FALSE(report["min_driver"].is_null());
  const json& entry = report["entries"][0];
  EXPECT_EQ(entry["template"], "attention_bwd");
  EXPECT_EQ(entry["kind"], "kernel");
  EXPECT_EQ(entry["outcome"], "compiled");
  EXPECT_EQ(entry["arch"], "8.0");
  EXPECT_EQ(entry["params"]["dqk"], "192");
  EXPECT_THAT(entry["reason"].get<std::string>(),
              AllOf(HasSubstr("head_dim.backward.ampere: "),
                    HasSubstr("end at 128 on compute capability 8.x"),
                    HasSubstr("; use another attention kernel")));
  EXPECT_EQ(kiln_.json_of(command + small("bwd", "192"))["hits"], 1);
  // What cuDNN runs is a plan all the same.
  const json both =
      kiln_.json_of(command + Arguments{"--training"} + small("fwd", "192"));
  expect_sums(both);
  EXPECT_EQ(both["hits"], 1);
  EXPECT_EQ(both["compiled"], 1);
  EXPECT_THAT(values_of(both["entries"], "kind"),
              UnorderedElementsAre("plan", "kernel"));
  EXPECT_THAT(kiln_.object_files(), SizeIs(2));
}

TEST_F(ProgramAttentionPlansTest, ForcedTheOneOrTheOtherIsBuilt) {
  const Arguments ampere{"--profile", "a100-sxm-80gb"};
  for (const bool by_flag : {true, false}) {
    if (!by_flag)
      kiln_.set("KILN_ATTENTION", "kiln");
    const json report =
        kiln_.json_of(kWarm + ampere + Arguments{"--training"} + small() +
                      (by_flag ? Arguments{"--kiln"} : Arguments{}));
    expect_sums(report);
    EXPECT_EQ(values_of(report["entries"], "template"),
              (std::set<std::string>{"attention_fwd", "attention_bwd"}));
    EXPECT_EQ(values_of(report["entries"], "reason"),
              std::set<std::string>{by_flag ? "--kiln" : "KILN_ATTENTION=kiln"});
    EXPECT_EQ(report[by_flag ? "compiled" : "hits"], 2) << report.dump(1);
  }
  kiln_.set("KILN_ATTENTION", "cudnn");
  const json refused = kiln_.json_of(kWarm + ampere + small("bwd", "192"), 1);
  expect_sums(refused);
  const json& entry = refused["entries"][0];
  EXPECT_EQ(entry["outcome"], "failed");
  EXPECT_TRUE(entry["key"].is_null());
  EXPECT_EQ(entry["error"]["code"], "compile_failed");
  EXPECT_THAT(entry["error"]["message"].get<std::string>(),
              HasSubstr("head_dim.backward.ampere: "));
  kiln_.set("KILN_ATTENTION", "flash");
  expect_no_setting();
}

TEST_F(ProgramAttentionPlansTest, OfPackedSequencesAndMasksWhatIsBesideThePlanIsBuilt) {
  Arguments packed = small();
  packed.back() = "padding_causal";
  const json report =
      kiln_.json_of(kWarm + kH200 + packed + Arguments{"--layout", "thd"});
  EXPECT_EQ(values_of(report["entries"], "template"),
            (std::set<std::string>{"cudnn_attention_fwd", "attention_sequences_fwd",
                                   "attention_empty_fwd"}));
  EXPECT_EQ(report["compiled"], 3) << report.dump(1);
  const json masked =
      kiln_.json_of(kWarm + kH200 + small() + Arguments{"--bias", "boolean"});
  EXPECT_EQ(values_of(masked["entries"], "template"),
            (std::set<std::string>{"cudnn_attention_fwd", "attention_mask_fwd"}));
}

// xformers #1045: a 2080 and a 3090. No published device is a 7.5.
TEST_F(ProgramAttentionPlansTest, AnArchitectureOfNoPublishedDeviceGetsKernels) {
  const json report =
      kiln_.json_of(kWarm + Arguments{"--arch", "7.5,8.6", "--kiln"} + small());
  EXPECT_EQ(values_of(report["entries"], "arch"),
            (std::set<std::string>{"7.5", "8.6"}));
  EXPECT_EQ(report["compiled"], 2) << report.dump(1);
  const json turing = kiln_.json_of(kWarm + Arguments{"--arch", "7.5"} + small());
  EXPECT_EQ(turing["hits"], 1);
  EXPECT_THAT(turing["entries"][0]["reason"].get<std::string>(),
              HasSubstr("arch.before_ampere: "));
}

TEST_F(ProgramAttentionPlansTest, WhatNeitherRunsFailsWithBothReasons) {
  const json report = kiln_.json_of(
      kWarm + Arguments{"--profile", "a100-sxm-80gb"} + small("bwd", "512"), 1);
  expect_sums(report);
  EXPECT_THAT(
      report["entries"][0]["error"]["message"].get<std::string>(),
      AllOf(HasSubstr("head_dim.backward"), HasSubstr("head dimensions up to 256")));
}

TEST_F(ProgramAttentionPlansTest,
       WhatCudnnItselfRefusesIsKilnsKernelThoughRulesAllowIt) {
  // No device of compute capability 9.0 has so little shared memory: no rule says so.
  const Arguments little{"--profile",
                         changed_profile("maxSharedMemoryPerBlockOptin", 48 * 1024)};
  const Arguments problem = little + small("fwd", "128");
  const json answer = kiln_.json_of(kExplain + problem);
  if (answer["cudnn"]["probe"]["built"] == true)
    GTEST_SKIP() << "this cuDNN has a plan for such a device";
  EXPECT_EQ(answer["chosen"], "kiln");
  const Arguments command = kWarm + problem + Arguments{"--fail-fast"};
  const json report = kiln_.json_of(command);
  expect_sums(report);
  EXPECT_EQ(report["compiled"], 1) << report.dump(1);
  const json& entry = report["entries"][0];
  EXPECT_EQ(entry["template"], "attention_fwd");
  EXPECT_EQ(entry["kind"], "kernel");
  EXPECT_THAT(entry["reason"].get<std::string>(), HasSubstr("refuses it: heuristics"));
  EXPECT_THAT(kiln_.run(command).err,
              HasSubstr("so Kiln's own kernel is built for the problem"));
  // With dropout one backend runs both passes.
  const json both = kiln_.json_of(kWarm + problem + Arguments{"--dropout", "0.1"});
  expect_sums(both);
  EXPECT_EQ(values_of(both["entries"], "template"),
            (std::set<std::string>{"attention_fwd", "attention_bwd"}));

  kiln_.set("KILN_ATTENTION", "cudnn");
  const json forced = kiln_.json_of(kWarm + problem, 1);
  expect_sums(forced);
  EXPECT_EQ(forced["entries"][0]["kind"], "plan");
  EXPECT_EQ(forced["entries"][0]["outcome"], "failed");
  EXPECT_THAT(forced["entries"][0]["error"]["message"].get<std::string>(),
              HasSubstr("refuses it: heuristics"));
}

TEST_F(ProgramAttentionPlansTest, WhatTheMachineLacksIsExitStatus3) {
  kiln_.set("KILN_NO_JIT", "1");
  const json forbidden = kiln_.json_of(kWarm + kH200 + small(), 3);
  EXPECT_EQ(forbidden["entries"][0]["error"]["code"], "unavailable");
  kiln_.unset("KILN_NO_JIT");
  kiln_.set("KILN_CUDNN", "/nowhere/libcudnn.so.9");
  const json missing = kiln_.json_of(kWarm + kH200 + small(), 3);
  expect_sums(missing);
  EXPECT_THAT(missing["entries"][0]["error"]["message"].get<std::string>(),
              HasSubstr("/nowhere/libcudnn.so.9"));
  for (const Arguments& action : {kExplain, kWhy}) {
    const auto finished = kiln_.run(action + kH200 + small());
    EXPECT_EQ(finished.status, 3) << finished.text();
    EXPECT_THAT(finished.err, HasSubstr("/nowhere/libcudnn.so.9"));
  }
}

/// cuDNN itself would end the program: "Unable to load any of …", SIGABRT.
TEST_F(ProgramAttentionPlansTest, AnIncompleteCudnnEndsNoProgram) {
  const auto copy = test::incomplete_cudnn(kiln_.folder() / "broken", used_cudnn(),
                                           test::CudnnPart::kEmpty);
  kiln_.set("KILN_CUDNN", copy);
  expect_unusable(copy);
}

TEST_F(ProgramAttentionPlansTest, ACudnnWithoutItsPartsEndsNoProgram) {
  const auto copy = test::incomplete_cudnn(kiln_.folder() / "broken", used_cudnn(),
                                           test::CudnnPart::kMissing);
  kiln_.set("KILN_CUDNN", copy);
  test::in_mount_namespace([&] {
    // Else the loader finds those of this machine.
    if (::mount("/dev/null", "/etc/ld.so.cache", nullptr, MS_BIND, nullptr) != 0)
      return test::kImpossible;
    expect_unusable(copy);
    return 0;
  });
}

TEST_F(ProgramAttentionPlansTest, DoctorNamesTheCudnnWhosePartsAreUsed) {
  EXPECT_THAT(cudnn_check()["detail"].get<std::string>(),
              AllOf(HasSubstr(", version 9."), HasSubstr(", which is used"),
                    Not(HasSubstr("parts"))));
  const auto used = used_cudnn();
  const auto other = kiln_.folder() / "other" / "libcudnn_graph.so.9";
  std::filesystem::create_directories(other.parent_path());
  std::filesystem::copy_file(used.parent_path() / other.filename(), other);
  kiln_.set("LD_LIBRARY_PATH", other.parent_path());
  kiln_.set("KILN_CUDNN", used);
  const json check = cudnn_check();
  EXPECT_EQ(check["verdict"], "warn");
  EXPECT_THAT(check["detail"].get<std::string>(),
              HasSubstr("with the parts of another cuDNN: " + other.native()));
  EXPECT_THAT(check["remedy"].get<std::string>(), HasSubstr("LD_LIBRARY_PATH"));
}

TEST_F(ProgramAttentionPlansTest, AnInterruptedWarmSaysWhatWasDoneAndLeavesNoWorker) {
  auto running = kiln_.start(kWarm +
                             Arguments{"--arch", "8.0,8.6,8.9,9.0,10.0,12.0",
                                       "--training", "--jobs", "1", "--json"} +
                             small());
  ASSERT_TRUE(test::eventually(60s, [&] { return !kiln_.object_files().empty(); }));
  const auto workers = test::children_of(running.pid());
  running.signal(SIGINT);
  const auto finished = running.finish(30s);
  EXPECT_EQ(finished.status, 130) << finished.text();
  const json report = finished.json();
  expect_sums(report);
  EXPECT_GE(report["compiled"], 1);
  EXPECT_GE(report["failed"], 1);
  EXPECT_EQ(report["entries"].back()["error"]["code"], "cancelled");
  for (const pid_t worker : workers) EXPECT_FALSE(test::is_running(worker));
}

TEST_F(ProgramAttentionPlansTest, ExplainAsksTheInstalledCudnnForEachStep) {
  const json answer =
      kiln_.json_of(kExplain + kH200 + Arguments{"--cp", "all_gather:2"} + small());
  EXPECT_EQ(answer["chosen"], "cudnn");
  ASSERT_THAT(answer["steps"], SizeIs(4));
  for (const json& step : answer["steps"])
    EXPECT_EQ(
        step["cudnn"]["probe"],
        (json{{"ran", true}, {"built", true}, {"status", "built"}, {"message", ""}}));
  EXPECT_EQ(answer["cudnn"]["probe"], answer["steps"][0]["cudnn"]["probe"]);
  EXPECT_THAT(kiln_.object_files(), SizeIs(4)) << "an answer is a plan that is kept";

  const json refused = kiln_.json_of(
      kExplain + Arguments{"--profile", "a100-sxm-80gb"} + small("bwd", "192"));
  EXPECT_EQ(refused["chosen"], "kiln");
  const json& probe = refused["cudnn"]["probe"];
  EXPECT_EQ(probe["ran"], true);
  EXPECT_EQ(probe["built"], false);
  EXPECT_EQ(probe["status"], "refused");
  EXPECT_THAT(probe["message"].get<std::string>(), HasSubstr("hidden_dim"));
}

TEST_F(ProgramAttentionPlansTest, AnInterruptedExplainAnswersNothing) {
  auto running = kiln_.start(kExplain + kH200 +
                             Arguments{"--cp", "all_gather:16", "--json"} + small());
  ASSERT_TRUE(test::eventually(60s, [&] { return !kiln_.object_files().empty(); }));
  running.signal(SIGINT);
  const auto finished = running.finish(30s);
  EXPECT_EQ(finished.status, 130) << finished.text();
  EXPECT_EQ(finished.json()["error"]["code"], "cancelled");
}

TEST_F(ProgramAttentionPlansTest, ExplainTellsWhereCudnnBuildsWhatTheRulesRefuse) {
  const Arguments unequal = test::words(
      "--pass bwd --dtype bf16 --batch 1 --heads 4 --sq 256 --skv 256 --dqk 256 --dv "
      "128 --mask none");
  const json answer = kiln_.json_of(kExplain + kH200 + unequal);
  EXPECT_EQ(answer["chosen"], "kiln");
  EXPECT_EQ(answer["cudnn"]["rules"][0]["id"], "head_dim.backward.hopper.unequal");
  EXPECT_EQ(answer["cudnn"]["probe"]["built"], true);
  EXPECT_THAT(answer["cudnn"]["probe"]["message"].get<std::string>(),
              HasSubstr("builds a plan that the rules refuse"));
}

TEST_F(ProgramAttentionPlansTest, WhyNamesTheNearestPlanAndWhatDiffers) {
  const json none = kiln_.json_of(kWhy + kH200 + small());
  EXPECT_EQ(none["same"], false);
  EXPECT_TRUE(none["nearest"].is_null());
  const std::string key = warmed(kH200 + small());
  const json hit = kiln_.json_of(kWhy + kH200 + small());
  EXPECT_EQ(hit["same"], true);
  EXPECT_EQ(hit["key"], key);

  const json other =
      kiln_.json_of(kWhy + Arguments{"--profile", "h100-pcie"} + small());
  EXPECT_EQ(other["same"], false);
  EXPECT_EQ(other["nearest"], key);
  EXPECT_THAT(values_of(other["differences"], "field"),
              ElementsAre("device.multiProcessorCount"));
  // The device as `doctor --profile` would write it under a newer driver.
  const json newer = kiln_.json_of(
      kWhy + Arguments{"--profile", changed_profile("driverVer", 13010)} + small());
  EXPECT_EQ(newer["nearest"], key);
  EXPECT_EQ(
      newer["differences"],
      (json::array({{{"field", "device.driverVer"}, {"a", "13010"}, {"b", "13000"}}})));
  const auto said = kiln_.run(kWhy + Arguments{"--profile", "h100-pcie"} + small());
  EXPECT_THAT(said.out, AllOf(HasSubstr("a miss; the nearest entry is " + key),
                              HasSubstr("device.multiProcessorCount"),
                              HasSubstr("for NVIDIA H100 PCIe")));
}

TEST_F(ProgramAttentionPlansTest, OtherVerbsKnowWhatAPlanIs) {
  const std::string key = warmed(kH200 + small());
  EXPECT_NE(warmed(kH200 + small("bwd")), key);

  const json shown = kiln_.json_of({"show", key});
  EXPECT_EQ(shown["kind"], "plan");
  EXPECT_THAT(shown["toolchain"].get<std::string>(), HasSubstr("cudnn-"));
  const json& plan = shown["plan"];
  EXPECT_THAT(plan["engine"].get<std::string>(), HasSubstr("engine "));
  EXPECT_TRUE(plan["workspace_bytes"].is_number_unsigned());
  EXPECT_EQ(plan["tensors"], (json{"q", "k", "v", "o", "scale"}));
  EXPECT_EQ(plan["bound_to"]["deviceVer"], 900);
  EXPECT_EQ(plan["bound_to"]["driverVer"], 13000);
  const auto text = kiln_.run({"show", key});
  EXPECT_THAT(text.out, AllOf(HasSubstr("engine "), HasSubstr("workspace "),
                              HasSubstr("bound to "), Not(HasSubstr("registers"))));
  EXPECT_THAT(kiln_.run({"show", key, "--source"}).out,
              AllOf(HasSubstr("--pass fwd --dtype bf16 --layout bshd"),
                    testing::EndsWith("\n")));
  EXPECT_THAT(kiln_.run({"show", key, "--log"}).out, HasSubstr("CUDNN_STATUS_SUCCESS"));
  const std::string file = kiln_.folder() / "plan.json";
  EXPECT_EQ(kiln_.run({"show", key, "--extract", file}).status, 0);
  const json raw = json::parse(std::ifstream(file));
  EXPECT_TRUE(raw.contains("cudnnVersion"));
  EXPECT_EQ(raw["GPUProfile"]["deviceVer"], 900);

  const json listed = kiln_.json_of({"ls", "--template", "cudnn_attention_fwd"});
  ASSERT_THAT(listed["entries"], SizeIs(1));
  EXPECT_EQ(listed["entries"][0]["key"], key);
  EXPECT_EQ(kiln_.json_of({"verify"})["checked"], 2);
  EXPECT_EQ(
      kiln_.json_of({"clear", "--template", "cudnn_attention_fwd", "--yes"})["keys"],
      json{key});
  EXPECT_THAT(kiln_.object_files(), SizeIs(1));
}

TEST_F(ProgramAttentionPlansTest, APackBringsPlansAndKernelsToAMachineThatBuildsNone) {
  const Arguments command = kWarm + Arguments{"--profile", "a100-sxm-80gb"} +
                            small("fwd", "192") + Arguments{"--training"};
  ASSERT_EQ(kiln_.json_of(command)["compiled"], 2) << "a plan, and a kernel of Kiln's";
  const std::string pack = kiln_.folder() / "job.kpack";
  ASSERT_EQ(kiln_.json_of({"pack", "-o", pack})["objects"], 2);
  kiln_.set("KILN_NO_JIT", "1");
  kiln_.set("KILN_CACHE_DIR", kiln_.folder() / "node");
  EXPECT_EQ(kiln_.json_of(command, 3)["hits"], 0);
  for (const char* const tier : {"seed", "disk"}) {
    const json hits = kiln_.json_of(command + Arguments{"--seed", pack});
    EXPECT_EQ(hits["hits"], 2) << hits.dump(1);
    EXPECT_EQ(values_of(hits["entries"], "tier"), std::set<std::string>{tier});
    EXPECT_EQ(values_of(hits["entries"], "kind"),
              (std::set<std::string>{"plan", "kernel"}));
  }
  kiln_.set("KILN_CACHE_DIR", kiln_.folder() / "other");
  ASSERT_EQ(kiln_.json_of({"unpack", pack})["stored"], 2);
  EXPECT_EQ(kiln_.json_of(command)["hits"], 2);
  EXPECT_EQ(kiln_.json_of({"verify"})["checked"], 2);
}

TEST_F(ProgramAttentionPlansTest, WrongUsageIsOneSentence) {
  expect_wrong(kWarm, "the problem needs --pass, --dtype");
  expect_wrong(kWarm + Arguments{"--profile", "h100-smx"} + small(),
               "did you mean 'h100-sxm'?");
  expect_wrong(kWarm + kH200 + Arguments{"--preset", "llama-3-9b"},
               "did you mean 'llama-3-8b'?");
  expect_wrong(
      kWarm + kH200 + Arguments{"--preset", "llama-3-8b", "--pass", "sideways"},
      "--pass 'sideways'");
  expect_wrong(kWarm + Arguments{"--profile", "/nowhere.json"} + small(),
               "/nowhere.json");
  expect_wrong(kWarm + Arguments{"--arch", "9.9"} + small(), "9.9");
  expect_wrong(kWarm + Arguments{"--arch", "10.3"} + small(),
               "no published one of that architecture (8.0, 8.6, 8.9, 9.0, 10.0, 12.0");
  expect_wrong(kWarm + kH200 + Arguments{"--driver", "13"} + small(), "--driver: '13'");
  expect_wrong(kWarm + kH200 + Arguments{"--jobs", "0"} + small(), "--jobs: '0'");
  expect_wrong(kWarm + kH200 + Arguments{"--timeout", "soon"} + small(), "'soon'");
  expect_wrong(kWarm + kH200 + Arguments{"--cp", "p2p:3"} + small(), "multiples of 6");
  expect_wrong(kWarm + kH200 + Arguments{"--matrix"} + small(),
               "--matrix is for `attention explain`");
  expect_wrong(kWarm + kH200 + Arguments{"--cudnn", "9.5"} + small(),
               "--cudnn is for `attention explain`");
  expect_wrong(kExplain + kH200 + Arguments{"--kiln"} + small(),
               "--kiln is for `attention warm`");
  expect_wrong(kExplain + kH200 + Arguments{"--dry-run"} + small(),
               "--dry-run is for `attention warm`");
  expect_wrong(kWhy + Arguments{"--arch", "9.0"} + small(), "one device at a time");
  expect_wrong(kWhy + kH200 + Arguments{"--cp", "p2p:2"} + small(), "one plan");
  expect_wrong(kWhy + kH200, "the problem needs");
  expect_wrong({"attention", "wram"}, "did you mean 'warm'?");
}

}  // namespace
}  // namespace kiln
