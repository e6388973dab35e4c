// The published cases of attention, from end to end through the program, with the cuDNN
// that is here: what was refused then, why, and that it is built now. No GPU is needed.

#include <set>

#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

/// NVIDIA/TransformerEngine #1276: Llama 7B in bf16, 4096 long, on two ranks.
const Arguments kLlama = test::words(
    "--dtype bf16 --batch 1 --heads 32 --sq 4096 --skv 4096 --dqk 128 --mask causal "
    "--layout sbhd --training --cp all_gather:2");

/// NVIDIA/TransformerEngine #1591: f16, 16 heads, 1024 by 1024, causal.
Arguments latent(const char* pass, const char* dqk, const char* dv) {
  return {"attention", "explain", "--pass", pass,   "--dtype", "f16",   "--batch",
          "2",         "--heads", "16",     "--sq", "1024",    "--skv", "1024",
          "--dqk",     dqk,       "--dv",   dv,     "--mask",  "causal"};
}

std::vector<std::string> ids(const json& rules) {
  std::vector<std::string> found;
  for (const json& each : rules) found.push_back(each.at("id"));
  return found;
}

class AttentionCasesByRules : public testing::Test {
 protected:
  test::KilnProgram kiln_;
};

class AttentionCases : public AttentionCasesByRules {
 protected:
  /// Skips unless this cuDNN builds plans here.
  void SetUp() override {
    const auto finished =
        kiln_.run(latent("fwd", "64", "64") +
                  Arguments{"--profile", "h100-sxm", "--cudnn", "installed", "--json"});
    if (finished.status == 3)
      GTEST_SKIP() << "there is no cuDNN here: " << finished.err;
    ASSERT_EQ(finished.status, 0) << finished.text();
    const json probe = finished.json()["cudnn"]["probe"];
    if (!probe["ran"])
      GTEST_SKIP() << "no plan can be built here: " << probe["message"];
    ASSERT_TRUE(probe["built"]) << probe;
  }
  /// What is said of it by rules and by the cuDNN that is here, for a published device.
  json installed(const char* device, const Arguments& problem) {
    return kiln_.json_of(
        problem + Arguments{"--profile", device, "--cudnn", "installed"})["cudnn"];
  }
};

TEST_F(AttentionCases, EveryStepOfAllGatherIsBuiltBeforeTheJob) {
  const Arguments warm = Arguments{"attention", "warm", "--profile", "h100-sxm"} +
                         Arguments{"--pass", "fwd"} + kLlama;
  // Four lengths of the keys, forward and backward.
  const json first = kiln_.json_of(warm);
  EXPECT_EQ(first["compiled"], 8) << first.dump(1);
  EXPECT_EQ(first["failed"], 0);
  const json second = kiln_.json_of(warm);
  EXPECT_EQ(second["hits"], 8) << second.dump(1);
  EXPECT_EQ(second["compiled"], 0);

  // The job's own questions are answered without a build.
  kiln_.set("KILN_NO_JIT", "1");
  for (const char* const pass : {"fwd", "bwd"}) {
    const json job =
        kiln_.json_of(Arguments{"attention", "explain", "--profile", "h200", "--cudnn",
                                "installed", "--pass", pass} +
                      kLlama);
    EXPECT_EQ(job["chosen"], "cudnn");
    ASSERT_EQ(job["steps"].size(), 4U);
    for (const json& step : job["steps"])
      EXPECT_EQ(step["cudnn"]["probe"]["built"], true) << pass << step.dump(1);
  }
}

TEST_F(AttentionCases, BackwardOf192With128IsBuiltOnHopper) {
  for (const char* const pass : {"fwd", "bwd"}) {
    const json now = installed("h100-sxm", latent(pass, "192", "128"));
    EXPECT_EQ(now["supported"], true) << now.dump(1);
    EXPECT_EQ(now["probe"]["built"], true) << now.dump(1);
  }
}

// xformers #1045: one process, a 2080 and a 3090; heads in groups.
TEST_F(AttentionCases, TuringAndAmpereGetEachWhatWasBuiltForIt) {
  const Arguments grouped = test::words(
      "attention warm --arch 7.5,8.6 --pass fwd --dtype f16 --batch 1 --heads 8 --sq "
      "512 --skv 512 --dqk 64 --mask none --kv-heads 2");
  const json report = kiln_.json_of(grouped);
  EXPECT_EQ(report["failed"], 0) << report.dump(1);
  std::set<std::string> built;
  for (const json& entry : report["entries"])
    built.insert(entry["arch"].get<std::string>() + " " +
                 entry["template"].get<std::string>());
  EXPECT_EQ(built,
            (std::set<std::string>{"7.5 attention_fwd", "8.6 cudnn_attention_fwd"}));
}

TEST_F(AttentionCases, BackwardOf192OnAmpereIsKilnsAndWarmed) {
  const Arguments device{"--profile", "a100-sxm-80gb"};
  Arguments warm = latent("bwd", "192", "128");
  warm[1] = "warm";
  const json report = kiln_.json_of(warm + device);
  ASSERT_EQ(report["compiled"], 1) << report.dump(1);
  EXPECT_EQ(report["entries"][0]["template"], "attention_bwd");
  EXPECT_THAT(report["entries"][0]["reason"].get<std::string>(),
              HasSubstr("head_dim.backward.ampere"));
  kiln_.set("KILN_NO_JIT", "1");
  EXPECT_EQ(kiln_.json_of(warm + device)["hits"], 1);
}

TEST_F(AttentionCases, BackwardOf192IsRefusedOnAmpereInCudnnsOwnWords) {
  const json ampere = installed("a100-sxm-80gb", latent("bwd", "192", "128"));
  EXPECT_THAT(ids(ampere["rules"]), ElementsAre("head_dim.backward.ampere"));
  EXPECT_EQ(ampere["probe"]["ran"], true);
  EXPECT_EQ(ampere["probe"]["built"], false);
  EXPECT_THAT(ampere["probe"]["message"].get<std::string>(), HasSubstr("128"));
  EXPECT_EQ(installed("a100-sxm-80gb", latent("fwd", "192", "128"))["probe"]["built"],
            true);
}

TEST_F(AttentionCases, PaddingVTo192HarmsOnBlackwell) {
  const json as_is = installed("b200", latent("bwd", "192", "128"));
  EXPECT_EQ(as_is["supported"], true) << as_is.dump(1);
  EXPECT_EQ(as_is["probe"]["built"], true) << as_is.dump(1);
  const json padded = installed("b200", latent("bwd", "192", "192"));
  EXPECT_THAT(ids(padded["rules"]), ElementsAre("head_dim.backward.blackwell.other"));
  EXPECT_EQ(padded["probe"]["built"], false);
  EXPECT_THAT(padded["probe"]["message"].get<std::string>(),
              HasSubstr("d_v should be equal to 128 if d_qk is 192"));
}

TEST_F(AttentionCasesByRules, StepsOfAllGatherNeed93) {
  const json old = kiln_.json_of(Arguments{"attention", "explain", "--pass", "fwd",
                                           "--arch", "9.0", "--cudnn", "9.1"} +
                                 kLlama);
  ASSERT_THAT(ids(old["cudnn"]["rules"]), ElementsAre("mask.causal_bottom_right"));
  const json& rule = old["cudnn"]["rules"][0];
  EXPECT_EQ(rule["reason"], "causal_bottom_right needs cuDNN >= 9.3.0; found 9.1.0");
  EXPECT_THAT(rule["remedy"].get<std::string>(), HasSubstr("upgrade cuDNN to 9.3.0"));
  EXPECT_EQ(old["chosen"], "kiln") << "meanwhile";
  for (const json& step : old["steps"]) EXPECT_EQ(step["chosen"], "kiln");
}

TEST_F(AttentionCasesByRules, BackwardOf192With128IsToldApartFromForward) {
  for (const char* const version : {"9.1", "9.4"}) {
    const Arguments where{"--arch", "9.0", "--cudnn", version};
    const json training = kiln_.json_of(latent("bwd", "192", "128") + where)["cudnn"];
    ASSERT_THAT(ids(training["rules"]), ElementsAre("head_dim.backward.hopper"));
    const std::string remedy = training["rules"][0]["remedy"];
    EXPECT_THAT(remedy, HasSubstr("upgrade cuDNN to 9.5.0"));
    EXPECT_THAT(remedy, Not(HasSubstr("pad")));
    EXPECT_EQ(kiln_.json_of(latent("fwd", "192", "128") + where)["chosen"], "cudnn");
    EXPECT_EQ(kiln_.json_of(latent("bwd", "192", "128") + where)["chosen"], "kiln");
  }
}

TEST_F(AttentionCasesByRules, PaddingVIsOfferedWhereItHelps) {
  const auto remedy = [&](const char* arch, const char* cudnn) {
    const json cudnn_says = kiln_.json_of(latent("bwd", "192", "160") +
                                          Arguments{"--arch", arch, "--cudnn", cudnn});
    return cudnn_says["cudnn"]["rules"].dump();
  };
  EXPECT_THAT(remedy("9.0", "9.4"), Not(HasSubstr("pad V with zeros")));
  EXPECT_THAT(remedy("9.0", "9.11"), HasSubstr("pad V with zeros"));
  EXPECT_THAT(remedy("10.0", "9.11"), Not(HasSubstr("pad V with zeros")));
}

// jax-ml/jax #27599.
TEST_F(AttentionCasesByRules, CaptureOnTwoDevicesNames98) {
  const auto policies = [&](const char* cudnn) {
    return kiln_.json_of(
        latent("fwd", "64", "64") +
        Arguments{"--capture", "--arch", "8.6", "--cudnn", cudnn})["cudnn"]["policies"];
  };
  const json old = policies("9.1");
  EXPECT_THAT(ids(old), testing::Contains("capture.jax.devices"));
  EXPECT_THAT(old.dump(), HasSubstr("upgrade cuDNN to 9.8.0"));
  EXPECT_THAT(ids(policies("9.8")), Not(testing::Contains("capture.jax.devices")));
}

}  // namespace
}  // namespace kiln
