// Manifests of `kiln warm`: every bad line is told at once, and --skip-bad leaves them
// out.

#include <string>

#include "tests/integration/program_warm.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

class ProgramManifestTest : public ProgramWarmTest {
 protected:
  /// Lines 1 and 5 are good.
  const std::string manifest_ = kiln_.write(
      "m.jsonl",
      "{\"template\":\"scaled_softmax_fwd\",\"params\":{\"dtype\":\"bf16\"}}\n"
      "{oops\n"
      "{\"source\":\"x\",\"define\":[]}\n"
      "{\"template\":\"scaled_sofmax_fwd\"}\n"
      "{\"source\":\"__global__ void k() {}\",\"arch\":\"9.0\",\"file\":\"k.cu\"}\n"
      "\n"
      "{\"source\":\"x\",\"options\":[\"-arch=sm_80\"],\"file\":\"refused.cu\"}\n"
      "{\"source\":\"x\",\"arch\":\"8.0\"}\n");
  const std::vector<std::string> reasons_{
      manifest_ + ":2: not JSON",
      manifest_ + ":3: unknown key 'define', did you mean 'defines'?",
      manifest_ + ":4: no template 'scaled_sofmax_fwd', did you mean",
      manifest_ + ":7: option '-arch=sm_80' is refused",
      manifest_ + ":8: this line has \"arch\": \"8.0\", and 9.0 is asked for"};
  const test::KilnProgram::Arguments command_{"warm", "--manifest", manifest_, "--arch",
                                              "9.0"};
};

TEST_F(ProgramManifestTest, EveryBadLineIsToldAtOnceAndNothingIsBuilt) {
  const auto refused = kiln_.run(command_);
  EXPECT_EQ(refused.status, 2) << refused.text();
  EXPECT_THAT(refused.err, HasSubstr("5 lines are wrong, and nothing is built"));
  const auto document = kiln_.json_of(command_, 2);
  const auto told = document["error"]["message"].get<std::string>();
  for (const std::string& reason : reasons_) {
    EXPECT_THAT(refused.err, HasSubstr("\n" + reason));
    EXPECT_THAT(told, HasSubstr("\n" + reason));
  }
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 5) << told;
  EXPECT_THAT(kiln_.object_files(), IsEmpty());
}

TEST_F(ProgramManifestTest, SkipBadBuildsTheRestAndCountsWhatItLeftOut) {
  kiln_.use_fake_nvrtc();
  const auto skipping = command_ + test::KilnProgram::Arguments{"--skip-bad"};
  const auto built = kiln_.run(skipping);
  EXPECT_EQ(built.status, 1) << built.text();
  for (const std::string& reason : reasons_)
    EXPECT_THAT(built.err, HasSubstr("kiln: left out: " + reason));
  EXPECT_THAT(built.out, HasSubstr("2 requested: 0 hits, 2 compiled, 5 bad lines left "
                                   "out, in "));
  const json report = kiln_.json_of(skipping, 1);
  expect_sums(report);
  EXPECT_EQ(report["hits"], 2);
  EXPECT_EQ(report["bad_lines"], 5);
  // Without one it is as if the option were not there.
  const std::string good = kiln_.write("good.jsonl", "{\"source\":\"\"}\n");
  EXPECT_EQ(kiln_.json_of({"warm", "--manifest", good, "--arch", "9.0", "--skip-bad",
                           "--dry-run"})["bad_lines"],
            0);
  const std::string bad = kiln_.write("bad.jsonl", "x\n");
  const json none = kiln_.json_of({"warm", "--manifest", bad, "--skip-bad"}, 1);
  EXPECT_EQ(none["requested"], 0);
  EXPECT_EQ(none["bad_lines"], 1);
}

TEST_F(ProgramManifestTest, LinesThatNoNvrtcHereCanBuildAreOfTheEnvironment) {
  kiln_.use_fake_nvrtc();  // an NVRTC 13: it begins at 7.5
  const std::string line = "{\"source\":\"x\",\"arch\":\"7.0\"}\n";
  const std::string old = kiln_.write("old.jsonl", line + line);
  const auto refused = kiln_.run({"warm", "--manifest", old});
  EXPECT_EQ(refused.status, 3) << refused.text();
  EXPECT_THAT(refused.err, HasSubstr("\n" + old + ":2: "));
  const std::string mixed = kiln_.write("mixed.jsonl", line + "x\n");
  EXPECT_EQ(kiln_.run({"warm", "--manifest", mixed}).status, 2);
}

TEST_F(ProgramManifestTest, FieldsOfALineReachTheCompilerAndFoldersAreBesideIt) {
  kiln_.write("there/inc/value.h", "#define VALUE 3\n");
  const std::string manifest = kiln_.write(
      "there/m.jsonl",
      json{{"source",
            "#include <value.h>\ntemplate <class T> requires(sizeof(T) > 1) __global__ "
            "void set(T* x) { static_assert(VALUE * BY == 6); *x = 6; }"},
           {"include_dirs", {"inc"}},
           {"defines", {"BY=2"}},
           {"std", "c++20"},
           {"file", "set.cu"},
           {"names", {"set<int>"}}}
              .dump() +
          "\n");
  const json report = kiln_.json_of({"warm", "--manifest", manifest, "--arch", "9.0"});
  EXPECT_EQ(report["compiled"], 1) << report;
  const json preimage = kiln_.json_of(
      {"show", report["entries"][0]["key"].get<std::string>()})["preimage"];
  std::vector<std::string> texts;
  for (const json& field : preimage) texts.push_back(field["value"].dump());
  EXPECT_THAT(texts, testing::Contains(HasSubstr("set.cu")));
  EXPECT_THAT(texts, testing::Contains(HasSubstr("--std=c++20")));
  EXPECT_THAT(texts, Not(testing::Contains(HasSubstr("--std=c++17"))));
}

}  // namespace
}  // namespace kiln
