// Whatever a variable of the environment says, a member of Options says as well.

#include "library/service_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace kiln {
namespace {

struct Setting {
  const char* variable;
  const char* value;
  const char* other;  // that the member beats
  std::function<void(Options&)> set;
};

const std::vector<Setting>& settings_of_each_kind() {
  static const auto* const all = new std::vector<Setting>{
      {"KILN_CACHE_DIR", "/c", "/x", [](Options& o) { o.cache_dir = "/c"; }},
      {"KILN_CACHE_SIZE", "1M", "2M",
       [](Options& o) { o.cache_limit_bytes = 1 << 20; }},
      {"KILN_TRUSTED_UIDS", "7,9", "8",
       [](Options& o) {
         o.trusted_uids = {{7, 9}};
       }},
      {"KILN_SEED", "/s:/t", "/x",
       [](Options& o) {
         o.seeds = {{"/s", "/t"}};
       }},
      {"KILN_REMOTE_KEYS", "/k", "/x", [](Options& o) { o.remote_keys = "/k"; }},
      {"KILN_REMOTE", "http://a;mode=rw https://b", "http://x",
       [](Options& o) { o.remote = "http://a;mode=rw https://b"; }},
      {"KILN_REMOTE_MODE", "rw", "off", [](Options& o) { o.remote_mode = "rw"; }},
      {"KILN_REMOTE_SIGN", "/p", "/x", [](Options& o) { o.remote_sign = "/p"; }},
      {"KILN_REMOTE_AUTH", "/a", "/x", [](Options& o) { o.remote_auth = "/a"; }},
      {"KILN_REMOTE_CA", "/b", "/x", [](Options& o) { o.remote_ca = "/b"; }},
      {"KILN_REMOTE_CERT", "/e", "/x", [](Options& o) { o.remote_certificate = "/e"; }},
      {"KILN_REMOTE_WAIT", "100ms", "1",
       [](Options& o) { o.remote_wait = std::chrono::milliseconds(100); }},
      {"KILN_PCH_SIZE", "1G", "2G",
       [](Options& o) { o.precompiled_limit_bytes = 1U << 30U; }},
      {"KILN_COMPILE_TIMEOUT", "2", "3",
       [](Options& o) { o.compile_timeout = std::chrono::seconds(2); }},
      {"KILN_WORKER_MEMORY", "1G", "2G",
       [](Options& o) { o.worker_memory_bytes = 1 << 30; }},
      {"KILN_JOBS", "3", "4", [](Options& o) { o.jobs = 3; }},
      {"KILN_NO_JIT", "1", "0", [](Options& o) { o.no_jit = true; }},
      {"KILN_NVRTC", "/n", "/x", [](Options& o) { o.nvrtc = "/n"; }},
      {"KILN_TOOLCHAIN", "13.0", "12.9", [](Options& o) { o.toolchain = "13.0"; }},
      {"KILN_CUDNN", "/d", "/x", [](Options& o) { o.cudnn = "/d"; }},
      {"KILN_DRIVER", "/l", "/x", [](Options& o) { o.driver = "/l"; }},
      {"KILN_WORKER", "/w", "/x", [](Options& o) { o.worker = "/w"; }},
      {"KILN_TEMPLATE_DIR", "/a:/b", "/x",
       [](Options& o) {
         o.template_dirs = {{"/a", "/b"}};
       }},
      {"KILN_ATTENTION", "cudnn", "kiln",
       [](Options& o) { o.attention = AttentionSetting::kCudnn; }},
      {"KILN_DISABLE", "a_*,b", "c",
       [](Options& o) {
         o.disable = {{"a_*", "b"}};
       }},
      {"KILN_RECORD", "/r", "/x", [](Options& o) { o.record = "/r"; }},
      {"KILN_LOG", "debug", "off", [](Options& o) { o.log_level = "debug"; }},
  };
  return *all;
}

Environment only(const std::string& variable, const std::string& value) {
  return [=](const std::string& name) -> std::optional<std::string> {
    if (name == variable)
      return value;
    return std::nullopt;
  };
}

TEST(ServiceOptions, SayWhatEachVariableSaysAndBeatIt) {
  const Config defaults = settings({}, only("", "")).value();
  for (const auto& [variable, value, other, set] : settings_of_each_kind()) {
    Options options;
    set(options);
    const auto by_options = settings(options, only("", ""));
    ASSERT_TRUE(by_options) << by_options.error().message;
    EXPECT_TRUE(*by_options == settings({}, only(variable, value)).value()) << variable;
    EXPECT_FALSE(*by_options == defaults) << variable;
    EXPECT_TRUE(*by_options == settings(options, only(variable, other)).value())
        << variable << " beats the member";
  }
}

TEST(ServiceOptions, AreThereForEveryVariable) {
  std::vector<std::string> tried;
  for (const Setting& each : settings_of_each_kind()) tried.emplace_back(each.variable);
  tried.emplace_back("KILN_TRUSTED_GIDS");  // the groups are the machine's matter
  std::vector<std::string> all;
  for (const EnvironmentVariable& each : environment_reference())
    all.emplace_back(each.name);
  EXPECT_THAT(tried, testing::UnorderedElementsAreArray(all));
}

}  // namespace
}  // namespace kiln
