// Each setting reaches its field, from the environment and from Options.

#include "build/settings.h"

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/is_error.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using Paths = std::vector<std::filesystem::path>;
using Words = std::vector<std::string>;

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
  return settings({}, environment(std::move(variables))).value().cache_dir;
}

TEST(SettingsTest, TheCacheDirComesFromTheFirstVariableThatNamesOne) {
  EXPECT_EQ(cache_dir({{"KILN_CACHE_DIR", "/k"}, {"HOME", "/h"}}), "/k");
  EXPECT_EQ(cache_dir({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}), "/x/kiln");
  EXPECT_EQ(cache_dir({{"XDG_CACHE_HOME", "relative"}, {"HOME", "/h"}}),
            "/h/.cache/kiln");
  EXPECT_EQ(cache_dir({{"KILN_CACHE_DIR", ""}, {"HOME", "/h"}}), "/h/.cache/kiln");
  EXPECT_EQ(cache_dir({}), "");
}

struct Example {
  const char* variable;
  const char* value;
  const char* other;  // a value that the member of Options comes before
  std::function<void(Options&)> set;
  std::function<bool(const Config&)> holds;
};

const std::vector<Example> kExamples{
    {"KILN_CACHE_DIR", "/c", "/x", [](Options& o) { o.cache_dir = "/c"; },
     [](const Config& c) { return c.cache_dir == "/c"; }},
    {"KILN_CACHE_SIZE", "1M", "2M", [](Options& o) { o.cache_limit_bytes = 1 << 20; },
     [](const Config& c) { return c.cache_limit_bytes == 1U << 20U; }},
    {"KILN_COUNTERS_DIR", "/n", "/x", [](Options& o) { o.counters_dir = "/n"; },
     [](const Config& c) { return c.counters_dir == "/n"; }},
    {"KILN_TRUSTED_UIDS", "7,9", "8",
     [](Options& o) {
       o.trusted_uids = {{7, 9}};
     },
     [](const Config& c) {
       return c.trusted_uids == std::vector<uid_t>{7, 9};
     }},
    {"KILN_TRUSTED_GIDS", "7,9", "8",
     [](Options& o) {
       o.trusted_gids = {{7, 9}};
     },
     [](const Config& c) {
       return c.trusted_gids == std::vector<gid_t>{7, 9};
     }},
    {"KILN_SEED", "/s::/t", "/x",
     [](Options& o) {
       o.seeds = {{"/s", "/t"}};
     },
     [](const Config& c) {
       return c.seeds == Paths{"/s", "/t"};
     }},
    {"KILN_REMOTE_KEYS", "/k", "/x", [](Options& o) { o.remote_keys = "/k"; },
     [](const Config& c) { return c.keys == "/k"; }},
    {"KILN_REMOTE", "http://a;mode=rw https://b", "http://x",
     [](Options& o) { o.remote = "http://a;mode=rw https://b"; },
     [](const Config& c) { return c.remote.servers == "http://a;mode=rw https://b"; }},
    {"KILN_REMOTE_MODE", "rw", "off", [](Options& o) { o.remote_mode = "rw"; },
     [](const Config& c) { return c.remote.mode == "rw"; }},
    {"KILN_REMOTE_SIGN", "/p", "/x", [](Options& o) { o.remote_sign = "/p"; },
     [](const Config& c) { return c.sign == "/p"; }},
    {"KILN_REMOTE_AUTH", "/a", "/x", [](Options& o) { o.remote_auth = "/a"; },
     [](const Config& c) { return c.remote.auth == "/a"; }},
    {"KILN_REMOTE_CA", "/b", "/x", [](Options& o) { o.remote_ca = "/b"; },
     [](const Config& c) { return c.remote.ca == "/b"; }},
    {"KILN_REMOTE_CERT", "/e", "/x", [](Options& o) { o.remote_certificate = "/e"; },
     [](const Config& c) { return c.remote.certificate == "/e"; }},
    {"KILN_REMOTE_WAIT", "100ms", "1", [](Options& o) { o.remote_wait = 100ms; },
     [](const Config& c) { return c.remote.wait == 100ms; }},
    {"KILN_PCH_SIZE", "1G", "2G",
     [](Options& o) { o.precompiled_limit_bytes = 1U << 30U; },
     [](const Config& c) { return precompiled_limit(c) == 1U << 30U; }},
    {"KILN_COMPILE_TIMEOUT", "2", "3", [](Options& o) { o.compile_timeout = 2s; },
     [](const Config& c) { return c.compile_timeout == 2s; }},
    {"KILN_WORKER_MEMORY", "1G", "2G",
     [](Options& o) { o.worker_memory_bytes = 1 << 30; },
     [](const Config& c) { return c.worker_memory_bytes == 1U << 30U; }},
    {"KILN_JOBS", "3", "4", [](Options& o) { o.jobs = 3; },
     [](const Config& c) { return c.jobs == 3U; }},
    {"KILN_NO_JIT", "1", "0", [](Options& o) { o.no_jit = true; },
     [](const Config& c) { return c.no_jit; }},
    {"KILN_STORE_SOURCE", "0", "1", [](Options& o) { o.store_source = false; },
     [](const Config& c) { return !c.store_source; }},
    {"KILN_NVRTC", "/n", "/x", [](Options& o) { o.nvrtc = "/n"; },
     [](const Config& c) { return c.nvrtc == "/n"; }},
    {"KILN_TOOLCHAIN", "13.0", "12.9", [](Options& o) { o.toolchain = "13.0"; },
     [](const Config& c) { return c.toolchain == "13.0"; }},
    {"KILN_CUDNN", "/d", "/x", [](Options& o) { o.cudnn = "/d"; },
     [](const Config& c) { return c.cudnn == "/d"; }},
    {"KILN_DRIVER", "/l", "/x", [](Options& o) { o.driver = "/l"; },
     [](const Config& c) { return c.driver == "/l"; }},
    {"KILN_WORKER", "/w", "/x", [](Options& o) { o.worker = "/w"; },
     [](const Config& c) { return c.worker == "/w"; }},
    {"KILN_TEMPLATE_DIR", "/a::/b", "/x",
     [](Options& o) {
       o.template_dirs = {{"/a", "/b"}};
     },
     [](const Config& c) {
       return c.template_dirs == Paths{"/a", "/b"};
     }},
    {"KILN_ATTENTION", "cudnn", "kiln",
     [](Options& o) { o.attention = AttentionSetting::kCudnn; },
     [](const Config& c) { return c.attention == AttentionSetting::kCudnn; }},
    {"KILN_DISABLE", "a_*, ,b", "c",
     [](Options& o) {
       o.disable = {{"a_*", "b"}};
     },
     [](const Config& c) {
       return c.disabled == Words{"a_*", "b"};
     }},
    {"KILN_RECORD", "/r", "/x", [](Options& o) { o.record = "/r"; },
     [](const Config& c) { return c.record == "/r"; }},
    {"KILN_EVENTS", "/v", "/x", [](Options& o) { o.events = "/v"; },
     [](const Config& c) { return c.events == "/v"; }},
    {"KILN_LOG", "debug", "off", [](Options& o) { o.log_level = "debug"; },
     [](const Config& c) { return c.log_level == "debug"; }},
};

TEST(SettingsTest, EachReachesItsFieldAndTheMemberOfOptionsComesBeforeTheVariable) {
  std::set<std::string> tried;
  for (const auto& [variable, value, other, set, holds] : kExamples) {
    SCOPED_TRACE(variable);
    tried.insert(variable);
    Options options;
    set(options);
    EXPECT_FALSE(holds(settings({}, environment({})).value()));
    EXPECT_FALSE(holds(settings({}, environment({{variable, other}})).value()));
    const Config by_variable = settings({}, environment({{variable, value}})).value();
    EXPECT_TRUE(holds(by_variable));
    EXPECT_TRUE(settings(options, environment({{variable, other}})).value() ==
                by_variable)
        << "no other field differs";
  }
  EXPECT_EQ(tried.size(), every_setting().size());
}

TEST(SettingsTest, ASeedThatMustBeSignedNeedsAKeyThatIsTrusted) {
  std::map<std::string, std::string> variables{{"KILN_SEED", "/a:/b;signed=1"}};
  EXPECT_THAT(
      settings({}, environment(variables)),
      test::IsError(ErrorCode::kInvalidArgument,
                    testing::StartsWith("KILN_SEED: /b;signed=1: no key is trusted")));
  EXPECT_THAT(settings({.seeds = {{"/c;signed=1"}}}, environment({})),
              test::IsError(ErrorCode::kInvalidArgument,
                            testing::StartsWith("Options::seeds: /c;signed=1: ")));
  EXPECT_TRUE(settings({.seeds = {{"/c;signed=0"}}}, environment(variables)));
  variables.emplace("KILN_REMOTE_KEYS", "/k");
  EXPECT_EQ(settings({}, environment(variables)).value().seeds,
            (Paths{"/a", "/b;signed=1"}));
}

TEST(SettingsTest, ARankIsWhatALauncherSaysFirst) {
  const auto rank_of = [](std::map<std::string, std::string> variables) {
    return settings({}, environment(std::move(variables))).value().rank;
  };
  EXPECT_EQ(rank_of({}), std::nullopt);
  EXPECT_EQ(rank_of({{"RANK", "3"}, {"SLURM_PROCID", "4"}}), 3U);
  EXPECT_EQ(rank_of({{"RANK", "the first"}, {"SLURM_PROCID", "0"}}), 0U);
  EXPECT_EQ(rank_of({{"OMPI_COMM_WORLD_RANK", "5"}}), 5U);
  EXPECT_EQ(rank_of({{"PMI_RANK", "-1"}}), std::nullopt);
}

TEST(SettingsTest, PrecompiledHeadersMayHaveAFifthOfTheCacheUpTo2GiB) {
  Config config;
  EXPECT_EQ(precompiled_limit(config), 2ULL << 30U);
  config.cache_limit_bytes = 1ULL << 40U;
  EXPECT_EQ(precompiled_limit(config), 2ULL << 30U);
  config.cache_limit_bytes = 500;
  EXPECT_EQ(precompiled_limit(config), 100U);
  config.precompiled_limit_bytes = 0;
  EXPECT_EQ(precompiled_limit(config), 0U);
}

}  // namespace
}  // namespace kiln
