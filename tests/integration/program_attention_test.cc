// kiln attention explain: the shape of its answer, that it exits 0 whatever that is,
// and 2 for wrong usage.

#include <set>

#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

class ProgramAttentionTest : public testing::Test {
 protected:
  /// NVIDIA/TransformerEngine #1276: Llama 7B, 4096 long, and `more`.
  static Arguments llama(const Arguments& more) {
    return test::words(
               "attention explain --pass fwd --dtype bf16 --batch 1 --heads 32 --sq "
               "4096 --skv 4096 --dqk 128 --mask causal --layout sbhd") +
           more;
  }
  /// NVIDIA/TransformerEngine #1591: 192 with 128, backward.
  static Arguments latent(const Arguments& more) {
    return test::words(
               "attention explain --pass bwd --dtype f16 --batch 2 --heads 16 --sq "
               "1024 --skv 1024 --dqk 192 --dv 128 --mask causal") +
           more;
  }
  void expect_wrong(const Arguments& arguments, const std::string& word) {
    Arguments with_json = arguments;
    with_json.emplace_back("--json");
    const auto finished = kiln_.run(with_json);
    EXPECT_EQ(finished.status, 2) << finished.text();
    EXPECT_THAT(finished.err, HasSubstr(word)) << finished.text();
    const json document = finished.json();
    EXPECT_EQ(document.size(), 1U);
    EXPECT_TRUE(document.contains("error")) << document.dump();
  }

  test::KilnProgram kiln_;
};

std::set<std::string> names(const json& object) {
  std::set<std::string> found;
  for (const auto& [name, value] : object.items()) found.insert(name);
  return found;
}

std::vector<std::string> ids(const json& rules) {
  std::vector<std::string> found;
  for (const json& each : rules) found.push_back(each.at("id"));
  return found;
}

void expect_probe_shape(const json& probe) {
  EXPECT_EQ(names(probe), (std::set<std::string>{"ran", "built", "status", "message"}));
  EXPECT_TRUE(probe["ran"].is_boolean() && probe["built"].is_boolean());
  EXPECT_THAT(probe["status"].get<std::string>(), Not(IsEmpty()));
}

void expect_cudnn_shape(const json& cudnn) {
  EXPECT_EQ(names(cudnn),
            (std::set<std::string>{"supported", "rules", "policies", "probe"}));
  EXPECT_TRUE(cudnn["supported"].is_boolean());
  for (const char* const list : {"rules", "policies"}) {
    for (const json& rule : cudnn[list]) {
      EXPECT_EQ(names(rule), (std::set<std::string>{"id", "reason", "remedy"}));
      for (const auto& [name, value] : rule.items())
        EXPECT_THAT(value.get<std::string>(), Not(IsEmpty())) << name;
    }
  }
  expect_probe_shape(cudnn["probe"]);
  EXPECT_EQ(cudnn["probe"]["ran"], false);
  EXPECT_THAT(cudnn["probe"]["message"].get<std::string>(), Not(IsEmpty()));
}

TEST_F(ProgramAttentionTest, AnswersInTheShapeThatIsPromised) {
  const json answer = kiln_.json_of(
      llama({"--arch", "9.0", "--cudnn", "9.1.0", "--cp", "all_gather:2"}));
  EXPECT_EQ(names(answer), (std::set<std::string>{"chosen", "cudnn", "kiln", "steps"}));
  EXPECT_EQ(answer["chosen"], "kiln");
  expect_cudnn_shape(answer["cudnn"]);
  const json kernel{{"supported", true}, {"reason", "attention_fwd on tensor cores"}};
  EXPECT_EQ(answer["kiln"], kernel);
  ASSERT_EQ(answer["steps"].size(), 4U);
  std::vector<int> lengths;
  for (const json& step : answer["steps"]) {
    EXPECT_EQ(names(step), (std::set<std::string>{"sq", "skv", "mask", "heads",
                                                  "chosen", "cudnn", "kiln"}));
    expect_cudnn_shape(step["cudnn"]);
    EXPECT_EQ(step["sq"], 1024);
    EXPECT_EQ(step["mask"], "causal_bottom_right");
    EXPECT_EQ(step["heads"], 32);
    EXPECT_EQ(step["chosen"], "kiln");
    EXPECT_EQ(step["kiln"], kernel);
    lengths.push_back(step["skv"]);
  }
  EXPECT_EQ(lengths, (std::vector{1024, 2048, 3072, 4096}));
}

TEST_F(ProgramAttentionTest, ExplainsContextParallelismByItsSteps) {
  const auto with = [&](const char* cudnn, const char* mode) {
    return kiln_.json_of(llama({"--arch", "9.0", "--cudnn", cudnn, "--cp", mode}));
  };
  const json refused = with("9.1.0", "all_gather:2")["cudnn"]["rules"];
  ASSERT_THAT(ids(refused), testing::ElementsAre("mask.causal_bottom_right"));
  EXPECT_EQ(refused[0]["reason"],
            "causal_bottom_right needs cuDNN >= 9.3.0; found 9.1.0");
  EXPECT_THAT(refused[0]["remedy"].get<std::string>(),
              AllOf(HasSubstr("upgrade cuDNN to 9.3.0"),
                    HasSubstr("split by p2p:2 or a2a:2, which cuDNN 9.1.0 runs")));
  for (const char* const mode : {"p2p:2", "a2a:2", "a2a+p2p:2x2"})
    EXPECT_EQ(with("9.1.0", mode)["chosen"], "cudnn") << mode;
  EXPECT_EQ(with("9.3.0", "all_gather:2")["chosen"], "cudnn");
  const json odd = with("9.3.0", "p2p:3");
  EXPECT_EQ(odd["chosen"], "none");
  EXPECT_THAT(ids(odd["cudnn"]["rules"]), Contains("cp.length"));
  EXPECT_THAT(odd["steps"], IsEmpty());
}

TEST_F(ProgramAttentionTest, ExplainsABackwardPassByItsVersion) {
  const json old = kiln_.json_of(latent({"--arch", "9.0", "--cudnn", "9.1"}));
  ASSERT_THAT(ids(old["cudnn"]["rules"]),
              testing::ElementsAre("head_dim.backward.hopper"));
  const std::string remedy = old["cudnn"]["rules"][0]["remedy"];
  EXPECT_THAT(remedy, HasSubstr("upgrade cuDNN to 9.5.0"));
  EXPECT_THAT(remedy, Not(HasSubstr("pad")));
  EXPECT_EQ(kiln_.json_of(latent({"--arch", "9.0", "--cudnn", "9.5"}))["chosen"],
            "cudnn");
  const json one = kiln_.json_of(latent({"--arch", "sm_100", "--cudnn", "9.11"}));
  EXPECT_EQ(one["steps"].size(), 1U);
}

TEST_F(ProgramAttentionTest, TakesADeviceFromAProfile) {
  // cuDNN's 23 keys, of which the version alone says something here.
  json keys = {{"deviceVer", 900}, {"deviceName", "a Hopper"}};
  for (const char* const key :
       {"regsPerBlock", "multiProcessorCount", "warpSize", "maxSharedMemoryPerBlock",
        "maxSharedMemoryPerBlockOptin", "reservedSharedMemoryPerBlock",
        "maxRegistersPerSM", "maxCtasPerSM", "maxThreadsPerBlock", "maxThreadsPerSM",
        "pciDeviceId", "isTccDriver", "supportCoopLaunch", "totalGlobalMem",
        "smClockRateKHz", "memClockRateKHz", "l2CacheSize", "cudaDeviceId",
        "driverVer"})
    keys[key] = 1;
  for (const char* const key : {"maxGridSize", "maxBlockSize"}) keys[key] = {1, 1, 1};
  const std::string hopper = kiln_.write("hopper.json", keys.dump());
  const json answer = kiln_.json_of(latent({"--profile", hopper, "--cudnn", "9.1"}));
  EXPECT_THAT(ids(answer["cudnn"]["rules"]),
              testing::ElementsAre("head_dim.backward.hopper"));
  const std::string profile = kiln_.write("wrong.json", "{}");
  expect_wrong(latent({"--profile", profile, "--cudnn", "9.5"}), "wrong.json");
  expect_wrong(latent({"--profile", "none.json", "--cudnn", "9.5"}), "none.json");
  expect_wrong(latent({"--profile", profile, "--arch", "9.0", "--cudnn", "9.5"}),
               "exclude each other");
}

TEST_F(ProgramAttentionTest, TakesAPublishedProfileByItsName) {
  const json answer =
      kiln_.json_of(latent({"--profile", "h100-sxm", "--cudnn", "9.1"}));
  EXPECT_THAT(ids(answer["cudnn"]["rules"]),
              testing::ElementsAre("head_dim.backward.hopper"));
  expect_wrong(latent({"--profile", "h100-smx", "--cudnn", "9.1"}),
               "did you mean 'h100-sxm'?");
}

TEST_F(ProgramAttentionTest, TakesTheGradientOfABiasWhereThereIsOne) {
  const Arguments odd = test::words(
      "attention explain --arch 9.0 --cudnn 9.4 --pass bwd --dtype bf16 --batch 2 "
      "--heads 16 --sq 1000 --skv 1000 --dqk 128 --mask none --bias post_scale");
  EXPECT_EQ(kiln_.json_of(odd)["chosen"], "cudnn");
  Arguments gradient = odd;
  gradient.emplace_back("--bias-gradient");
  EXPECT_THAT(ids(kiln_.json_of(gradient)["cudnn"]["rules"]),
              testing::ElementsAre("bias.gradient"));
  expect_wrong(latent({"--arch", "9.0", "--cudnn", "9.5", "--bias-gradient"}),
               "--bias-gradient: it is of a post_scale bias");
}

// program_attention_plans_test has what is asked of a cuDNN that is here.
TEST_F(ProgramAttentionTest, OnlyTheInstalledCudnnIsAskedForAPlan) {
  const json by_number = kiln_.json_of(latent({"--arch", "9.0", "--cudnn", "9.19.0"}));
  expect_cudnn_shape(by_number["cudnn"]);
  EXPECT_EQ(by_number["cudnn"]["probe"]["status"], "not_run");
  const auto finished =
      kiln_.run(latent({"--arch", "9.0", "--cudnn", "installed", "--json"}));
  if (finished.status == 3)
    GTEST_SKIP() << "there is no cuDNN here: " << finished.err;
  ASSERT_EQ(finished.status, 0) << finished.text();
  expect_probe_shape(finished.json()["cudnn"]["probe"]);
  kiln_.set("KILN_CUDNN", "/nowhere/libcudnn.so.9");
  const auto none = kiln_.run(latent({"--arch", "9.0", "--cudnn", "installed"}));
  EXPECT_EQ(none.status, 3) << none.text();
  EXPECT_THAT(none.err, HasSubstr("/nowhere/libcudnn.so.9"));
}

TEST_F(ProgramAttentionTest, SaysItToPeopleAsWell) {
  const auto no =
      kiln_.run(llama({"--arch", "9.0", "--cudnn", "9.1", "--cp", "all_gather:2"}));
  EXPECT_EQ(no.status, 0) << no.text();
  for (const char* const words :
       {"no: cuDNN 9.1.0 on 9.0 does not run", "refused  mask.causal_bottom_right",
        "-> upgrade cuDNN to 9.3.0", "the whole problem runs from cuDNN 9.3.0 on",
        "chosen: kiln",
        "kiln: Kiln's own kernel runs it: attention_fwd on tensor cores",
        "1024  3072  causal_bottom_right"})
    EXPECT_THAT(no.out, HasSubstr(words));
  const auto yes = kiln_.run(llama({"--arch", "9.0", "--cudnn", "9.1"}));
  EXPECT_THAT(yes.out, HasSubstr("yes: cuDNN 9.1.0 on 9.0 runs"));
  EXPECT_THAT(yes.out, HasSubstr("chosen: cudnn"));
  EXPECT_THAT(yes.out,
              HasSubstr("kiln: Kiln's own kernel would run it: attention_fwd"));
}

TEST_F(ProgramAttentionTest, SaysWhichOfKilnsKernelsRunsItAndWhy) {
  const auto kernel = [&](const Arguments& more) {
    return kiln_.json_of(llama(more + Arguments{"--cudnn", "9.19"}));
  };
  const json turing = kernel({"--arch", "7.5"});
  EXPECT_EQ(turing["chosen"], "kiln");
  EXPECT_THAT(
      turing["kiln"]["reason"].get<std::string>(),
      HasSubstr("attention_plain_fwd in float, as compute capability 7.5 has no "
                "tensor cores for bf16"));
  EXPECT_EQ(
      kiln_.json_of(latent({"--arch", "9.0", "--cudnn", "9.1"}))["kiln"]["reason"],
      "attention_bwd on tensor cores");
  const auto neither = kiln_.json_of(
      test::words("attention explain --arch 8.0 --cudnn 9.19 --pass bwd --dtype bf16 "
                  "--batch 1 --heads 4 --sq 256 --skv 256 --dqk 512 --mask none"));
  EXPECT_EQ(neither["chosen"], "none");
  EXPECT_EQ(neither["kiln"]["supported"], false);
  EXPECT_THAT(neither["kiln"]["reason"].get<std::string>(),
              HasSubstr("head dimensions up to 256"));
}

TEST_F(ProgramAttentionTest, WithDropoutWhatRefusesOnePassDecidesForBoth) {
  const Arguments forward = test::words(
      "attention explain --pass fwd --dtype f16 --batch 2 --heads 16 --sq 1024 --skv "
      "1024 --dqk 192 --dv 128 --mask causal --arch 8.0 --cudnn 9.19");
  EXPECT_EQ(kiln_.json_of(forward + Arguments{"--training"})["chosen"], "cudnn");
  const json both =
      kiln_.json_of(forward + Arguments{"--training", "--dropout", "0.1"});
  EXPECT_EQ(both["chosen"], "kiln");
  EXPECT_EQ(both["cudnn"]["supported"], true);
  EXPECT_THAT(
      both["cudnn"]["policies"].dump(),
      HasSubstr("drops the same probabilities, so the same backend must run it"));
}

TEST_F(ProgramAttentionTest, LaysOutArchitecturesAndVersions) {
  const json matrix = kiln_.json_of(latent({"--matrix"}));
  ASSERT_EQ(matrix["matrix"].size(), 8U * 12U);
  const std::set<std::string> before_9_5{"8.9.7", "9.0.0", "9.1.0", "9.3.0"};
  std::set<std::string> explained;
  for (const json& rule : matrix["rules"]) explained.insert(rule.at("id"));
  for (const json& cell : matrix["matrix"]) {
    EXPECT_EQ(names(cell),
              (std::set<std::string>{"arch", "cudnn", "chosen", "supported", "rules"}));
    EXPECT_EQ(cell["supported"], cell["rules"].empty());
    for (const json& id : cell["rules"])
      EXPECT_TRUE(explained.contains(id.get<std::string>()));
    if (cell["arch"] == "9.0") {
      EXPECT_EQ(cell["supported"], !before_9_5.contains(cell["cudnn"])) << cell;
    }
  }
  const auto table = kiln_.run(latent({"--matrix"}));
  EXPECT_EQ(table.status, 0) << table.text();
  EXPECT_THAT(table.out, HasSubstr("\nARCH  8.9.7"));
  EXPECT_THAT(table.out, HasSubstr("head_dim.backward.hopper: backward"));
  const json some =
      kiln_.json_of(latent({"--matrix", "--arch", "8.0,9.0", "--cudnn", "9.5"}));
  EXPECT_EQ(some["matrix"].size(), 2U);
}

TEST_F(ProgramAttentionTest, RefusesWrongUsageWithTheFlagsName) {
  const Arguments where{"--arch", "9.0", "--cudnn", "9.5"};
  const auto with = [&](const Arguments& more) { return llama(where) + more; };
  expect_wrong({"attention"}, "kiln attention explain");
  expect_wrong({"attention", "explian"}, "did you mean 'explain'?");
  expect_wrong({"attention", "explain", "--arch", "9.0"}, "--pass, --dtype, --batch");
  expect_wrong(llama({"--cudnn", "9.5"}), "--arch A or --profile FILE");
  expect_wrong(llama({"--arch", "9.0"}), "--cudnn VERSION");
  expect_wrong(llama({"--arch", "9.0", "--cudnn", "nine"}), "'nine' is no cuDNN");
  expect_wrong(llama({"--arch", "9.9", "--cudnn", "9.5"}), "9.9");
  expect_wrong(llama({"--arch", "8.0,9.0", "--cudnn", "9.5"}), "one architecture");
  expect_wrong(with({"--kv-heads", "5"}), "--kv-heads");
  expect_wrong(with({"--kv-heads", "0"}), "--kv-heads");
  expect_wrong(with({"--dv", "x"}), "--dv");
  expect_wrong(with({"--window", "5"}), "--window");
  expect_wrong(with({"--window", "5,5"}), "--window");
  expect_wrong(with({"--window", "-2,0"}), "--window");
  expect_wrong(with({"--bias", "alibl"}), "did you mean 'alibi'?");
  expect_wrong(with({"--dropout", "1.5"}), "--dropout");
  expect_wrong(with({"--dropout", "half"}), "--dropout");
  expect_wrong(with({"--cp", "ring:2"}), "--cp 'ring'");
  expect_wrong(with({"--cp", "p2p:1"}), "--cp");
  expect_wrong(with({"--matix"}), "did you mean '--matrix'?");
  EXPECT_EQ(kiln_.run(with({"--window", "-1,0"})).status, 0);
  EXPECT_THAT(kiln_.object_files(), IsEmpty());
}

}  // namespace
}  // namespace kiln
