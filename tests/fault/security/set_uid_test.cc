// Row 33: in a set-uid program the environment is whoever's started it, and says
// nothing.

#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

#include "build/settings.h"
#include "tests/fault/security/plants.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/paths.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using Settings = std::map<std::string, std::string>;

/// Each is another than the default.
const Settings kEvil{{"KILN_CACHE_DIR", "/evil/cache"},
                     {"KILN_CACHE_SIZE", "1234567B"},
                     {"KILN_PCH_SIZE", "7654321B"},
                     {"KILN_COUNTERS_DIR", "/evil/counters"},
                     {"KILN_TRUSTED_UIDS", "47111"},
                     {"KILN_TRUSTED_GIDS", "47111"},
                     {"KILN_SEED", "/evil/seed.kpack"},
                     {"KILN_REMOTE_KEYS", "/evil/keys"},
                     {"KILN_REMOTE_SIGN", "/evil/key"},
                     {"KILN_REMOTE", "http://evil/cache"},
                     {"KILN_REMOTE_MODE", "rw"},
                     {"KILN_REMOTE_AUTH", "/evil/auth"},
                     {"KILN_REMOTE_CA", "/evil/authorities"},
                     {"KILN_REMOTE_CERT", "/evil/certificate"},
                     {"KILN_REMOTE_WAIT", "77"},
                     {"KILN_COMPILE_TIMEOUT", "77"},
                     {"KILN_WORKER_MEMORY", "100M"},
                     {"KILN_JOBS", "77"},
                     {"KILN_NO_JIT", "1"},
                     {"KILN_NVRTC", "/evil/libnvrtc.so"},
                     {"KILN_TOOLCHAIN", "12.3"},
                     {"KILN_CUDNN", "/evil/libcudnn.so"},
                     {"KILN_DRIVER", "/evil/libcuda.so"},
                     {"KILN_WORKER", "/evil/worker"},
                     {"KILN_TEMPLATE_DIR", "/evil/templates"},
                     {"KILN_DISABLE", "evil_*"},
                     {"KILN_ATTENTION", "kiln"},
                     {"KILN_STORE_SOURCE", "0"},
                     {"KILN_RECORD", "/evil/record"},
                     {"KILN_EVENTS", "/evil/events"},
                     {"KILN_LOG", "trace"},
                     {"https_proxy", "http://evil:3128"},
                     {"XDG_RUNTIME_DIR", "/evil/runtime"},
                     {"CUDA_HOME", "/evil/cuda"},
                     {"LD_LIBRARY_PATH", "/evil/libraries"},
                     {"VIRTUAL_ENV", "/evil/python"}};

class SetUidTest : public test::CampaignTest {
 protected:
  void SetUp() override {
    if (!test::User::can_become_another())
      GTEST_SKIP() << "ONLY ROOT CAN BECOME A SECOND USER: set-uid programs were not "
                      "tried";
    ::chmod(dir_.path().c_str(), 0755);
    for (const fs::path& program : {plain_, set_uid_})
      fs::copy_file(test::paths::kSettingsProbe, program);
    ASSERT_EQ(::chown(set_uid_.c_str(), test::kVictim.uid(), test::kVictim.uid()), 0);
    ASSERT_EQ(::chmod(set_uid_.c_str(), 04755), 0);
  }

  /// What `program` says that a stranger starts with these variables and no others.
  static Settings run(const fs::path& program, const Settings& variables) {
    const std::string out = test::kStranger.run([&] {
      ::clearenv();
      for (const auto& [name, value] : variables)
        ::setenv(name.c_str(), value.c_str(), 1);
      std::string text;
      FILE* const pipe = ::popen(program.c_str(), "r");
      std::array<char, 4096> chunk{};
      while (const std::size_t n = std::fread(chunk.data(), 1, chunk.size(), pipe))
        text.append(chunk.data(), n);
      return ::pclose(pipe) == 0 ? text : "it failed: " + text;
    });
    Settings settings;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t equals = std::min(line.find('='), line.size());
      settings[line.substr(0, equals)] = line.substr(std::min(equals + 1, line.size()));
    }
    return settings;
  }

  const test::TempDir dir_;
  const fs::path plain_ = dir_.path() / "plain";
  const fs::path set_uid_ = dir_.path() / "set-uid";
};

TEST_F(SetUidTest, fault_33_ASetUidProgramAsksNothingOfTheEnvironment) {
  const Settings defaults = run(plain_, {});
  ASSERT_EQ(defaults.at("secure"), "no");
  for (const Setting& setting : every_setting())
    ASSERT_TRUE(kEvil.contains(setting.variable))
        << setting.variable << " is not tried";
  const Settings silent = run(set_uid_, {});
  if (silent.at("secure") != "yes")
    GTEST_SKIP() << "NO SET-UID PROGRAMS IN " << dir_.path() << ": nothing was tried";
  for (const auto& [name, value] : kEvil) {
    campaign_.injected();
    EXPECT_NE(run(plain_, {{name, value}}).at(name), defaults.at(name))
        << name << " changes nothing anyway";
  }
  if (run(set_uid_, kEvil) != silent)
    campaign_.wrong("the environment of a stranger counts");
}

TEST_F(SetUidTest, fault_33_ASetUidProgramHasNoCacheInTheFoldersOfItsStarter) {
  for (const char* name : {"HOME", "XDG_CACHE_HOME"}) {
    campaign_.injected();
    const Settings evil{{name, "/evil"}};
    EXPECT_NE(run(plain_, evil).at("KILN_CACHE_DIR"), "");
    if (const Settings told = run(set_uid_, evil); told.at("secure") != "yes")
      GTEST_SKIP() << "NO SET-UID PROGRAMS IN " << dir_.path() << ": nothing was tried";
    else if (!told.at("KILN_CACHE_DIR").empty())
      campaign_.wrong(std::string(name) + " names the cache");
  }
}

TEST_F(SetUidTest, fault_33_TheWorkerOfASetUidProgramGetsNoVariable) {
  const Settings evil{{"KILN_FAKE_NVRTC", "hang"}, {"TMPDIR", "/evil"}};
  EXPECT_NE(run(plain_, evil).at("worker"), "");
  campaign_.injected();
  if (const Settings told = run(set_uid_, evil); told.at("secure") != "yes")
    GTEST_SKIP() << "NO SET-UID PROGRAMS IN " << dir_.path() << ": nothing was tried";
  else if (!told.at("worker").empty())
    campaign_.wrong("the worker gets " + told.at("worker"));
}

}  // namespace
}  // namespace kiln
