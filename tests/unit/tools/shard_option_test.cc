// --shard: what a scheduler's variables mean, and what is said where they mean nothing.

#include "tools/shard_option.h"

#include <map>
#include <string>

#include "tests/support/test.h"

namespace kiln::tools {
namespace {

using Variables = std::map<std::string, std::string>;

Result<ShardChoice> parse(const std::string& text, const Variables& variables = {}) {
  return parse_shard(text, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string shard(const std::string& text, const Variables& variables = {}) {
  const auto parsed = parse(text, variables);
  return parsed ? std::to_string(parsed->shard.index) + "/" +
                      std::to_string(parsed->shard.count)
                : parsed.error().message;
}

Variables array(const std::string& id, const std::string& count,
                const std::string& least, const std::string& most,
                const std::string& step = "1") {
  return {{"SLURM_ARRAY_TASK_ID", id},
          {"SLURM_ARRAY_TASK_COUNT", count},
          {"SLURM_ARRAY_TASK_MIN", least},
          {"SLURM_ARRAY_TASK_MAX", most},
          {"SLURM_ARRAY_TASK_STEP", step}};
}

TEST(ShardOption, IsAnIndexFromZeroAndACount) {
  EXPECT_EQ(shard("0/1"), "0/1");
  EXPECT_EQ(shard("7/8"), "7/8");
  EXPECT_EQ(shard("65535/65536"), "65535/65536");
}

TEST(ShardOption, SaysInWordsWhatIsWrong) {
  for (const char* wrong : {"", "/", "3", "1/", "/2", "-1/2", "1/2/3", "a/b", "1/0",
                            "0/65537", "Auto", "99999999999999999999/2", "0x1/2"}) {
    const auto parsed = parse(wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(parsed.error().message, HasSubstr("neither auto nor i/n")) << wrong;
  }
  EXPECT_EQ(shard("4/4"), "--shard 4/4: there is no shard 4 of 4: they are 0 to 3");
}

TEST(ShardOption, AutoIsTheTaskOfASlurmArrayFromItsFirst) {
  EXPECT_EQ(shard("auto", array("0", "4", "0", "3")), "0/4");
  EXPECT_EQ(shard("auto", array("13", "4", "10", "13")), "3/4");
  EXPECT_EQ(shard("auto", array("6", "4", "0", "6", "2")), "3/4");
  // Slurm names a node, too, in each of these tasks.
  Variables both = array("2", "3", "0", "2");
  both["SLURM_NODEID"] = "0";
  both["SLURM_NNODES"] = "1";
  both["JOB_COMPLETION_INDEX"] = "9";
  EXPECT_EQ(shard("auto", both), "2/3");
  // Only what is needed.
  EXPECT_EQ(
      shard("auto", {{"SLURM_ARRAY_TASK_ID", "1"}, {"SLURM_ARRAY_TASK_COUNT", "2"}}),
      "1/2");
}

TEST(ShardOption, AnArrayWithGapsIsRefusedByEachOfItsTasks) {
  for (const char* id : {"0", "2", "5"})
    EXPECT_THAT(shard("auto", array(id, "3", "0", "5")), HasSubstr("--array=0-2"))
        << id;
  EXPECT_THAT(shard("auto", array("3", "4", "0", "6", "2")), HasSubstr("have gaps"));
  EXPECT_THAT(shard("auto", array("4", "4", "5", "8")),
              HasSubstr("SLURM_ARRAY_TASK_ID"));
  EXPECT_THAT(shard("auto", array("9", "4", "5", "8")), HasSubstr("no shard 4 of 4"));
}

TEST(ShardOption, AutoIsElseTheNodeOfASlurmJobOrTheIndexOfAKubernetesJob) {
  EXPECT_EQ(shard("auto", {{"SLURM_NODEID", "3"}, {"SLURM_NNODES", "16"}}), "3/16");
  EXPECT_EQ(shard("auto", {{"JOB_COMPLETION_INDEX", "2"}, {"KILN_SHARDS", "5"}}),
            "2/5");
}

TEST(ShardOption, AutoNamesTheVariableThatIsMissingOrWrong) {
  EXPECT_THAT(shard("auto"), HasSubstr("no task of a Slurm array"));
  EXPECT_THAT(shard("auto", {{"KILN_SHARDS", "5"}}), HasSubstr("JOB_COMPLETION_INDEX"));
  EXPECT_THAT(shard("auto", {{"JOB_COMPLETION_INDEX", "2"}}),
              HasSubstr("KILN_SHARDS is not set"));
  EXPECT_THAT(shard("auto", {{"JOB_COMPLETION_INDEX", "2"}, {"KILN_SHARDS", "many"}}),
              HasSubstr("KILN_SHARDS: "));
  EXPECT_THAT(shard("auto", {{"SLURM_NODEID", "1"}}),
              HasSubstr("SLURM_NNODES is not set"));
  EXPECT_THAT(shard("auto", {{"SLURM_NODEID", "1"}, {"SLURM_NNODES", "1"}}),
              HasSubstr("no shard 1 of 1"));
  EXPECT_THAT(shard("auto", {{"SLURM_ARRAY_TASK_ID", "1"}}),
              HasSubstr("SLURM_ARRAY_TASK_COUNT is not set"));
}

}  // namespace
}  // namespace kiln::tools
