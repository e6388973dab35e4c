// `kiln warm --preset` builds what the training of a model asks for.

#include <fmt/format.h>

#include <fstream>
#include <set>

#include "tests/integration/program_warm.h"
#include "tests/support/paths.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

TEST_F(ProgramWarmTest, APresetBuildsWhatAModelsTrainingAsksForAndThenNothing) {
  kiln_.use_fake_nvrtc();
  const std::vector<std::string> command{"warm", "--preset", "llama-3-8b", "--arch",
                                         "9.0"};
  const json first = kiln_.json_of(command);
  expect_sums(first);
  EXPECT_EQ(first["compiled"], first["requested"]);
  std::set<std::string> templates;
  for (const json& entry : first["entries"]) {
    templates.insert(entry["template"]);
    EXPECT_EQ(entry["params"]["dtype"], "bf16");
  }
  for (const char* const kernel :
       {"rope_fwd", "rope_bwd", "rmsnorm_fwd", "rmsnorm_bwd", "swiglu_fwd",
        "swiglu_bwd", "cross_entropy_fwd", "scaled_upper_triang_masked_softmax_fwd",
        "attention_fwd", "attention_bwd"})
    EXPECT_EQ(templates.count(kernel), 1U) << kernel;
  EXPECT_EQ(kiln_.json_of(command)["hits"], first["requested"]);
  const auto without =
      kiln_.run(command + test::KilnProgram::Arguments{"--no-attention"});
  EXPECT_THAT(without.err, HasSubstr("llama-3-8b: without attention"));
  EXPECT_THAT(without.out, HasSubstr(fmt::format("{} requested",
                                                 first["requested"].get<int>() - 3)));
}

TEST_F(ProgramWarmTest, APresetSaysForWhichSizesAndWhatOfTheModelIsMissing) {
  kiln_.use_fake_nvrtc();
  const auto said =
      kiln_.run({"warm", "--preset", "gemma-2-9b", "--arch", "9.0", "--dry-run"});
  EXPECT_EQ(said.status, 0) << said.text();
  EXPECT_THAT(said.err,
              AllOf(HasSubstr("for every batch and length; no plan of cuDNN: "
                              "a plan is for one device, which --profile names\n"),
                    HasSubstr("gemma-2-9b: not the whole model: "),
                    HasSubstr("soft cap"), HasSubstr("windows")));
}

TEST_F(ProgramWarmTest, WithAProfileAPresetHasCudnnsPlansWhereItCanHaveThem) {
  kiln_.use_fake_nvrtc();
  const test::KilnProgram::Arguments command{"warm",      "--preset", "llama-3-8b",
                                             "--profile", "h100-sxm", "--dry-run"};
  const auto said = kiln_.run(command);
  EXPECT_EQ(said.status, 0) << said.text();
  std::set<std::string> plans;
  const json report = kiln_.json_of(command);
  for (const json& entry : report["entries"]) {
    if (entry.value("kind", "") == "plan")
      plans.insert(entry["template"]);
  }
  // A cuDNN that plans can be built with is not everywhere; then that is said.
  if (plans.empty()) {
    EXPECT_THAT(said.err, HasSubstr("; no plan of cuDNN: "));
  } else {
    EXPECT_THAT(plans,
                testing::ElementsAre("cudnn_attention_bwd", "cudnn_attention_fwd"));
    EXPECT_THAT(said.err, HasSubstr("; by cuDNN on NVIDIA H100 80GB HBM3, for batch 1 "
                                    "and length 8192 ("));
  }
  kiln_.set("KILN_ATTENTION", "kiln");
  const auto without = kiln_.run(command);
  EXPECT_EQ(without.status, 0) << without.text();
  EXPECT_THAT(without.err, HasSubstr("; no plan of cuDNN: KILN_ATTENTION=kiln\n"));
  kiln_.unset("KILN_ATTENTION");
  kiln_.set("KILN_CUDNN", "/nowhere/libcudnn.so.9");
  const auto elsewhere = kiln_.run(command);
  EXPECT_EQ(elsewhere.status, 0) << elsewhere.text();
  EXPECT_THAT(elsewhere.err, HasSubstr("/nowhere/libcudnn.so.9"));
  // One that names no more than the architecture is enough for kernels.
  const std::string little =
      kiln_.write("little.json", R"({"deviceName": "some H100", "deviceVer": 900})");
  kiln_.unset("KILN_CUDNN");
  const auto short_one =
      kiln_.run({"warm", "--preset", "llama-3-8b", "--profile", little, "--dry-run"});
  EXPECT_EQ(short_one.status, 0) << short_one.text();
  EXPECT_THAT(short_one.err,
              AllOf(HasSubstr("; no plan of cuDNN: "), HasSubstr("little.json")));
}

TEST_F(ProgramWarmTest, PlansOfAPresetThatCudnnRefusesAreNamedAndCounted) {
  kiln_.use_fake_nvrtc();
  // By a rule: on Ampere the backward pass ends at head dimensions of 128.
  const test::KilnProgram::Arguments ampere{"warm",      "--preset",      "gemma-2-9b",
                                            "--profile", "a100-sxm-80gb", "--dry-run"};
  const auto said = kiln_.run(ampere);
  if (said.err.find("; by cuDNN on ") == std::string::npos)
    GTEST_SKIP() << "no cuDNN here that plans can be built with";
  EXPECT_THAT(said.err, HasSubstr("NVIDIA A100-SXM4-80GB, bwd: cuDNN"));
  EXPECT_THAT(said.out, HasSubstr(", 1 refused by cuDNN"));
  EXPECT_EQ(kiln_.json_of(ampere)["refused"], 1);

  // By cuDNN itself, which no rule foresees: so little shared memory has no H200.
  json profile =
      json::parse(std::ifstream(test::paths::source("src/device/profiles/h200.json")));
  profile["maxSharedMemoryPerBlockOptin"] = 48 * 1024;
  const test::KilnProgram::Arguments little{"warm", "--preset", "llama-3-8b",
                                            "--profile",
                                            kiln_.write("little.json", profile.dump())};
  const auto built = kiln_.run(little + test::KilnProgram::Arguments{"--json"});
  if (built.err.find("refuses it") == std::string::npos)
    GTEST_SKIP() << "this cuDNN has a plan for such a device";
  EXPECT_THAT(built.err, AllOf(HasSubstr("fwd bf16 b1 h32/8"), HasSubstr("refuses it"),
                               HasSubstr("; so Kiln's own kernel runs the problem")));
  const json report = built.json();
  expect_sums(report);
  EXPECT_EQ(report["refused"], 2) << report;
  EXPECT_EQ(report["failed"], 0);
  EXPECT_FALSE(kiln_
                   .json_of({"warm", "--preset", "llama-3-8b", "--arch", "9.0",
                             "--no-attention", "--dry-run"})
                   .contains("refused"));
}

TEST_F(ProgramWarmTest, APresetOfOnesOwnIsAFileAndAWrongOneIsWrongUsage) {
  kiln_.use_fake_nvrtc();
  const std::string mine = kiln_.write(
      "mine.toml", "schema = 1\ndtype = \"f32\"\n[loss]\nvocabulary = 1000\n");
  const json report = kiln_.json_of({"warm", "--preset", mine, "--arch", "9.0"});
  ASSERT_THAT(report["entries"], SizeIs(3));  // in one pass, and in two
  EXPECT_EQ(report["entries"][0]["template"], "cross_entropy_fwd");
  EXPECT_EQ(report["entries"][2]["template"], "cross_entropy_bwd");
  const auto unknown = kiln_.run({"warm", "--preset", "llama-3-9b", "--arch", "9.0"});
  EXPECT_EQ(unknown.status, 2) << unknown.text();
  EXPECT_THAT(unknown.err, HasSubstr("did you mean 'llama-3-8b'?"));
  const std::string wrong = kiln_.write("wrong.toml", "schema = 1\n");
  EXPECT_EQ(kiln_.run({"warm", "--preset", wrong, "--arch", "9.0"}).status, 2);
}

}  // namespace
}  // namespace kiln
