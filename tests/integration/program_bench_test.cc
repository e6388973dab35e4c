// kiln bench, on simulated devices: what it runs and how it answers. They compute
// nothing and tell no time, so no figure is looked at.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace kiln {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

class ProgramBenchTest : public testing::Test {
 protected:
  ProgramBenchTest() {
    kiln_.set("KILN_DRIVER", KILN_TEST_SIMULATED_DRIVER);
    kiln_.set("KILN_SIMULATED_DEVICES", "7.5,9.0");
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
  const std::vector<std::string> operations{
      "activation_backward", "activation_forward", "cross_entropy",
      "glu_backward",        "glu_forward",        "layernorm_backward",
      "layernorm_forward",   "rmsnorm_backward",   "rmsnorm_forward",
      "rope_backward",       "rope_forward",       "softmax_backward",
      "softmax_forward"};
  std::vector<std::string> command{"bench", "--device", "1", "--rounds", "1"};
  for (const std::string& operation : operations)
    command.push_back(operation + ":dtype=bf16");
  const json report = kiln_.json_of(command);
  std::set<std::string> run;
  for (const json& entry : report["entries"]) {
    EXPECT_TRUE(entry["error"].is_null()) << entry.dump(1);
    run.insert(entry["operation"]);
  }
  EXPECT_THAT(run, testing::UnorderedElementsAreArray(operations));
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

TEST_F(ProgramBenchTest, NamesTheNearestOperationForAnUnknownOne) {
  const auto done = kiln_.run({"bench", "softmax_foward"});
  EXPECT_EQ(done.status, 2) << done.text();
  EXPECT_THAT(done.err, HasSubstr("did you mean 'softmax_forward'?"));
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
