// kiln bench, on simulated devices: what it runs and how it answers. They compute
// nothing and tell no time, so no figure is looked at.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ops/operation_table.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

/// Attention, which takes three structs, is in no table.
std::set<std::string> names_of_operations() {
#define KILN_NAME(function, Args) #function,
  return {"attention_backward", "attention_forward", KILN_EACH_OPERATION(KILN_NAME)};
#undef KILN_NAME
}

/// Each once, on the second device, in the type that all forms are measured in.
std::vector<std::string> bench_of(const std::set<std::string>& operations) {
  std::vector<std::string> command{"bench", "--device", "1", "--rounds", "1"};
  for (const std::string& operation : operations)
    command.push_back(operation + ":dtype=bf16");
  // Kernels without tensor cores are measured where there is no other.
  command.insert(command.end(),
                 {"attention_forward:dtype=f32", "attention_backward:dtype=f32"});
  return command;
}

class ProgramBenchTest : public testing::Test {
 protected:
  ProgramBenchTest() {
    kiln_.set("KILN_DRIVER", test::paths::kSimulatedDriver);
    kiln_.set("KILN_SIMULATED_DEVICES", "7.5,9.0");
    kiln_.set("KILN_CUDNN", "/nowhere/libcudnn.so.9");
  }
  test::KilnProgram kiln_;
};

TEST_F(ProgramBenchTest,
       RunsAnOperationOnTheDeviceAskedForAndClaimsNoTimeOfASimulatedOne) {
  const json report = kiln_.json_of(
      {"bench", "softmax_forward:dtype=bf16", "--device", "1", "--rounds", "1"});
  EXPECT_EQ(report["device"]["capability"], "9.0");
  ASSERT_THAT(report["entries"], SizeIs(3));
  for (const json& entry : report["entries"]) {
    EXPECT_EQ(entry["operation"], "softmax_forward");
    EXPECT_EQ(entry["dtype"], "bf16");
    EXPECT_GT(entry["bytes"], 1'000'000'000) << entry.dump();
    EXPECT_TRUE(entry["error"].is_null()) << entry.dump();
    for (const char* const figure :
         {"microseconds", "gb_per_s", "copy_gb_per_s", "of_copy"})
      EXPECT_TRUE(entry[figure].is_null()) << figure;
  }
}

TEST_F(ProgramBenchTest, PrintsATableWithAGoalInEachRow) {
  const auto done = kiln_.run({"bench", "softmax_backward:dtype=f16", "--rounds=1"});
  EXPECT_EQ(done.status, 0) << done.text();
  EXPECT_THAT(done.out,
              AllOf(HasSubstr("OPERATION"), HasSubstr("causal"), HasSubstr("0.85")));
}

// Each goes all the way: built by the real NVRTC, loaded, launched with arguments whose
// sizes the driver compares with the kernel's.
TEST_F(ProgramBenchTest, EveryOperationRuns) {
  const std::set<std::string> operations = names_of_operations();
  ASSERT_THAT(operations, SizeIs(testing::Ge(15)));
  const json report = kiln_.json_of(bench_of(operations));
  std::set<std::string> run;
  for (const json& entry : report["entries"]) {
    EXPECT_TRUE(entry["error"].is_null()) << entry.dump(1);
    run.insert(entry["operation"]);
  }
  EXPECT_EQ(run, operations);
}

// Where all kernels are switched off, each case says which one it was about to launch
// first. The gradient of a bias comes behind the other gradients: see below.
TEST_F(ProgramBenchTest, EveryKernelHasACase) {
  kiln_.set("KILN_DISABLE", "*");
  const json report = kiln_.json_of(bench_of(names_of_operations()), 1);
  std::set<std::string> wanted;
  for (const json& entry : report["entries"]) {
    const std::string message = entry["error"]["message"];
    EXPECT_THAT(message, HasSubstr("is switched off"));
    wanted.insert(message.substr(0, message.find(' ')));
  }
  const json templates = kiln_.json_of({"templates"});
  std::set<std::string> kernels;
  for (const json& kernel : templates["templates"]) kernels.insert(kernel["name"]);
  wanted.insert("attention_bias_bwd");
  // They write little, beside cuDNN's plans.
  for (const char* each : {"attention_sequences_fwd", "attention_mask_fwd",
                           "attention_empty_fwd", "attention_empty_bwd"})
    kernels.erase(each);
  EXPECT_EQ(wanted, kernels);
}

TEST_F(ProgramBenchTest, TheKernelOfABiasGradientHasACase) {
  kiln_.set("KILN_DISABLE", "attention_bias_bwd");
  const json report = kiln_.json_of(
      {"bench", "attention_backward:dtype=f32", "--device", "1", "--rounds", "1"}, 1);
  ASSERT_THAT(report["entries"], SizeIs(2));
  EXPECT_TRUE(report["entries"][0]["error"].is_null());
  EXPECT_THAT(report["entries"][1]["error"]["message"].get<std::string>(),
              HasSubstr("attention_bias_bwd is switched off"));
}

TEST_F(ProgramBenchTest, AttentionIsMeasuredByItsArithmeticBesideTheGoalOfTheDevice) {
  kiln_.set("KILN_DISABLE", "*");  // the cases alone are looked at
  const json report = kiln_.json_of({"bench", "attention_forward:dtype=f16",
                                     "attention_backward:dtype=f16", "--device", "1"},
                                    1);
  std::map<std::string, double> flops;
  std::map<std::string, json> goals;
  for (const json& entry : report["entries"]) {
    const std::string name =
        entry["operation"].get<std::string>() + " " + entry["what"].get<std::string>();
    flops[name] = entry["flops"];
    goals[name] = entry["goal_tflops"];
    for (const char* const figure : {"bytes", "gb_per_s", "goal", "tflops", "of_goal"})
      EXPECT_TRUE(entry[figure].is_null()) << figure;
  }
  // 4 * batch * heads * sq * skv * dim.
  const double full = 4.0 * 8 * 16 * 2048 * 2048 * 128;
  EXPECT_EQ(flops["attention_forward full, 8 x 2048 x 16 x 128"], full);
  EXPECT_EQ(flops["attention_forward causal, 8 x 2048 x 16 x 128"], full / 2);
  EXPECT_EQ(flops["attention_backward causal, 8 x 2048 x 16 x 128"], 2.5 * full / 2);
  EXPECT_EQ(flops["attention_forward full, 8 x 2048 x 16 x 192/128"],
            full * (192 + 128) / 2 / 128);
  EXPECT_EQ(goals["attention_forward causal, 2 x 8192 x 16 x 128"], 240);
  EXPECT_EQ(goals["attention_backward causal, 2 x 8192 x 16 x 128"], 144);
  EXPECT_TRUE(goals["attention_forward causal, 2 x 8192 x 32 x 64"].is_null());
}

TEST_F(ProgramBenchTest, LeavesTheCasesOfAnAbsentCudnnOutWithOneReason) {
  kiln_.set("KILN_ATTENTION", "kiln");  // for programs of the user's
  const json report = kiln_.json_of(
      {"bench", "attention_backward:dtype=f32", "--device", "1", "--rounds", "1"});
  ASSERT_THAT(report["entries"], SizeIs(2));
  for (const json& entry : report["entries"]) EXPECT_EQ(entry["backend"], "kiln");
  ASSERT_THAT(report["left_out"], SizeIs(1));
  EXPECT_EQ(report["left_out"][0]["backend"], "cudnn");
  EXPECT_EQ(report["left_out"][0]["cases"], 2);
  EXPECT_THAT(report["left_out"][0]["reason"].get<std::string>(),
              HasSubstr("/nowhere/libcudnn.so.9"));
  EXPECT_THAT(kiln_.json_of({"bench", "rope_forward:dtype=f16"})["left_out"],
              SizeIs(0));
}

TEST_F(ProgramBenchTest, LeavesOutWhatTheRulesOfCudnnRefuse) {
  kiln_.unset("KILN_CUDNN");
  kiln_.set("KILN_DISABLE", "attention_*");
  const json report = kiln_.json_of({"bench", "attention_forward:dtype=f16"}, 1);
  ASSERT_THAT(report["left_out"], SizeIs(1));
  const std::string reason = report["left_out"][0]["reason"];
  if (reason.starts_with("no libcudnn.so.9 found"))
    GTEST_SKIP() << reason;
  EXPECT_THAT(reason, AllOf(HasSubstr(" does not run it: arch.before_ampere: "),
                            HasSubstr("; use another attention kernel")));
  EXPECT_EQ(report["left_out"][0]["cases"], report["entries"].size());
}

TEST_F(ProgramBenchTest, PrintsArithmeticInATableOfItsOwn) {
  kiln_.set("KILN_DISABLE", "attention_*");
  const auto done = kiln_.run({"bench", "attention_forward:dtype=bf16",
                               "softmax_forward:dtype=bf16", "--rounds=1"});
  EXPECT_EQ(done.status, 1) << done.text();
  EXPECT_THAT(done.out,
              AllOf(HasSubstr("COPY"), HasSubstr("TFLOP/s"),
                    HasSubstr("causal, 2 x 8192 x 16/4 x 128"),
                    HasSubstr("left out: 17 cases by cudnn: KILN_CUDNN is ")));
}

TEST_F(ProgramBenchTest, MeasuresWhatIsNamedTwiceOnce) {
  const auto entries_of = [&](std::vector<std::string> names) {
    names.insert(names.begin(), {"bench", "--rounds", "1"});
    return kiln_.json_of(names)["entries"];
  };
  const json once = entries_of({"rope_forward:dtype=f16"});
  ASSERT_THAT(once, SizeIs(1));
  EXPECT_EQ(entries_of({"rope_forward:dtype=f16", "rope_forward:dtype=f16"}), once);
}

TEST_F(ProgramBenchTest, GoesOnAfterAnOperationThatFailsAndExitsWithOne) {
  kiln_.set("KILN_DISABLE", "scaled_masked_*");
  const json report =
      kiln_.json_of({"bench", "softmax_forward:dtype=bf16", "--rounds", "1"}, 1);
  ASSERT_THAT(report["entries"], SizeIs(3));
  EXPECT_TRUE(report["entries"][0]["error"].is_null());
  EXPECT_THAT(report["entries"][1]["error"]["message"].get<std::string>(),
              HasSubstr("KILN_DISABLE"));
  EXPECT_TRUE(report["entries"][2]["error"].is_null());
}

TEST_F(ProgramBenchTest, AFamilyIsBothOfItsPasses) {
  const json report = kiln_.json_of({"bench", "rope:dtype=f32", "--rounds", "1"});
  std::set<std::string> operations;
  for (const json& each : report["entries"]) operations.insert(each["operation"]);
  EXPECT_EQ(operations, (std::set<std::string>{"rope_backward", "rope_forward"}));
}

TEST_F(ProgramBenchTest, NamesTheNearestOperationForAnUnknownOne) {
  const auto done = kiln_.run({"bench", "softmax_foward"});
  EXPECT_EQ(done.status, 2) << done.text();
  EXPECT_THAT(done.err, HasSubstr("'softmax_foward' is not one of the operations "));
  EXPECT_THAT(done.err, HasSubstr(", did you mean 'softmax_forward'?\n"));
  EXPECT_EQ(kiln_.run({"bench", "softmax_forward:dtype=f8"}).status, 2);
  EXPECT_EQ(kiln_.run({"bench", "softmax_forward:cols=8"}).status, 2);
  EXPECT_EQ(kiln_.run({"bench", "--rounds", "0"}).status, 2);
  EXPECT_EQ(kiln_.run({"bench", "--device", "2"}).status, 2);
}

TEST_F(ProgramBenchTest, SaysThatThereIsNoDeviceWhereThereIsNone) {
  kiln_.set("KILN_SIMULATED_DEVICES", "");
  const auto done = kiln_.run({"bench"});
  EXPECT_EQ(done.status, 3) << done.text();
  EXPECT_THAT(done.err, HasSubstr("nothing to measure"));
}

}  // namespace
}  // namespace kiln
