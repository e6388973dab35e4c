#include "build/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace kiln {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Environment environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](
             const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end())
      return std::nullopt;
    return found->second;
  };
}

std::filesystem::path cache_dir(std::map<std::string, std::string> variables) {
  return read_config(environment(std::move(variables))).value().cache_dir;
}

TEST(ConfigTest, TheCacheDirComesFromTheFirstVariableThatNamesOne) {
  EXPECT_EQ(cache_dir({{"KILN_CACHE_DIR", "/k"}, {"HOME", "/h"}}), "/k");
  EXPECT_EQ(cache_dir({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}), "/x/kiln");
  EXPECT_EQ(cache_dir({{"XDG_CACHE_HOME", "relative"}, {"HOME", "/h"}}),
            "/h/.cache/kiln");
  EXPECT_EQ(cache_dir({{"KILN_CACHE_DIR", ""}, {"HOME", "/h"}}), "/h/.cache/kiln");
  EXPECT_EQ(cache_dir({}), "");
}

TEST(ConfigTest, EveryVariableReachesItsField) {
  const Config config = read_config(environment({{"KILN_CACHE_SIZE", "1.5G"},
                                                 {"KILN_PCH_SIZE", "1M"},
                                                 {"KILN_TRUSTED_UIDS", "7,1000"},
                                                 {"KILN_TRUSTED_GIDS", "8,2000"},
                                                 {"KILN_SEED", "/s::/t"},
                                                 {"KILN_REMOTE_KEYS", "/k"},
                                                 {"KILN_REMOTE_SIGN", "/p"},
                                                 {"KILN_REMOTE", "http://h/c;mode=rw"},
                                                 {"KILN_REMOTE_MODE", "off"},
                                                 {"KILN_REMOTE_AUTH", "/u"},
                                                 {"KILN_REMOTE_CA", "/i"},
                                                 {"KILN_REMOTE_CERT", "/e"},
                                                 {"KILN_REMOTE_WAIT", "40ms"},
                                                 {"KILN_COMPILE_TIMEOUT", "5m"},
                                                 {"KILN_WORKER_MEMORY", "512M"},
                                                 {"KILN_JOBS", "3"},
                                                 {"KILN_NO_JIT", "1"},
                                                 {"KILN_NVRTC", "/n"},
                                                 {"KILN_CUDNN", "/c"},
                                                 {"KILN_DRIVER", "/d"},
                                                 {"KILN_WORKER", "/w"},
                                                 {"KILN_TOOLCHAIN", "13.0"},
                                                 {"KILN_TEMPLATE_DIR", "/a::/b"},
                                                 {"KILN_ATTENTION", "kiln"},
                                                 {"KILN_DISABLE", "rope_*, ,x_fwd"},
                                                 {"KILN_RECORD", "/r"},
                                                 {"KILN_LOG", "debug"}}))
                            .value();
  EXPECT_EQ(config.cache_limit_bytes, 3ULL << 29U);
  EXPECT_EQ(precompiled_limit(config), 1U << 20U);
  EXPECT_THAT(config.trusted_uids, ElementsAre(7U, 1000U));
  EXPECT_THAT(config.trusted_gids, ElementsAre(8U, 2000U));
  EXPECT_THAT(config.seeds, ElementsAre("/s", "/t"));
  EXPECT_EQ(config.keys, "/k");
  EXPECT_EQ(config.sign, "/p");
  EXPECT_EQ(config.remote.servers, "http://h/c;mode=rw");
  EXPECT_EQ(config.remote.mode, "off");
  EXPECT_EQ(config.remote.auth, "/u");
  EXPECT_EQ(config.remote.ca, "/i");
  EXPECT_EQ(config.remote.certificate, "/e");
  EXPECT_EQ(config.remote.wait, std::chrono::milliseconds(40));
  EXPECT_EQ(config.compile_timeout, std::chrono::minutes(5));
  EXPECT_EQ(config.worker_memory_bytes, 512ULL << 20U);
  EXPECT_EQ(config.jobs, 3U);
  EXPECT_TRUE(config.no_jit);
  EXPECT_EQ(config.nvrtc, "/n");
  EXPECT_EQ(config.cudnn, "/c");
  EXPECT_EQ(config.driver, "/d");
  EXPECT_EQ(config.worker, "/w");
  EXPECT_EQ(config.toolchain, "13.0");
  EXPECT_THAT(config.template_dirs, ElementsAre("/a", "/b"));
  EXPECT_EQ(config.attention, AttentionSetting::kKiln);
  EXPECT_THAT(config.disabled, ElementsAre("rope_*", "x_fwd"));
  EXPECT_EQ(config.record, "/r");
  EXPECT_EQ(config.log_level, "debug");
}

TEST(ConfigTest, ARankIsWhatALauncherSaysFirst) {
  const auto rank_of = [](std::map<std::string, std::string> variables) {
    return read_config(environment(std::move(variables))).value().rank;
  };
  EXPECT_EQ(rank_of({}), std::nullopt);
  EXPECT_EQ(rank_of({{"RANK", "3"}, {"SLURM_PROCID", "4"}}), 3U);
  EXPECT_EQ(rank_of({{"RANK", "the first"}, {"SLURM_PROCID", "0"}}), 0U);
  EXPECT_EQ(rank_of({{"OMPI_COMM_WORLD_RANK", "5"}}), 5U);
  EXPECT_EQ(rank_of({{"PMI_RANK", "-1"}}), std::nullopt);
}

TEST(ConfigTest, PrecompiledHeadersMayHaveAFifthOfTheCacheUpTo2GiB) {
  Config config;
  EXPECT_EQ(precompiled_limit(config), 2ULL << 30U);
  config.cache_limit_bytes = 1ULL << 40U;
  EXPECT_EQ(precompiled_limit(config), 2ULL << 30U);
  config.cache_limit_bytes = 500;
  EXPECT_EQ(precompiled_limit(config), 100U);
  config.precompiled_limit_bytes = 0;
  EXPECT_EQ(precompiled_limit(config), 0U);
}

TEST(ConfigTest, AWrongValueNamesItsVariable) {
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"KILN_CACHE_SIZE", "lots"},
                                          {"KILN_TRUSTED_UIDS", "root"},
                                          {"KILN_TRUSTED_GIDS", "wheel"},
                                          {"KILN_COMPILE_TIMEOUT", "-1"},
                                          {"KILN_WORKER_MEMORY", "1X"},
                                          {"KILN_JOBS", "0"},
                                          {"KILN_REMOTE_WAIT", "soon"},
                                          {"KILN_ATTENTION", "flash"},
                                          {"KILN_NO_JIT", "perhaps"}}) {
    SCOPED_TRACE(name);
    const auto config = read_config(environment({{name, value}}));
    ASSERT_FALSE(config);
    EXPECT_EQ(config.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(config.error().message, HasSubstr(name));
    EXPECT_THAT(config.error().message, HasSubstr(value));
  }
}

TEST(ConfigTest, TheReferenceNamesExactlyTheVariablesThatAreRead) {
  std::set<std::string> asked;
  std::ignore = read_config([&](const std::string& name) -> std::optional<std::string> {
    asked.insert(name);
    return std::nullopt;
  });
  std::set<std::string> documented;
  for (const EnvironmentVariable& variable : environment_reference())
    documented.insert(variable.name);
  for (const char* foreign :
       {"HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "RANK", "SLURM_PROCID",
        "OMPI_COMM_WORLD_RANK", "PMI_RANK", "TRACEPARENT"})
    asked.erase(foreign);
  EXPECT_EQ(asked, documented);
}

}  // namespace
}  // namespace kiln
