// Row 23: on a file system where a lock call never returns none is made. The programs
// are the real ones; what they are told, and what they call, a preloaded library sees.

#include <string>
#include <vector>

#include "tests/support/fault/campaign.h"
#include "tests/support/preload.h"
#include "tests/support/program.h"
#include "tests/support/simulated_driver.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using test::Campaign;
using test::Preload;

constexpr std::chrono::seconds kGoodTime{60};

class NetworkFileSystemTest : public testing::Test {
 protected:
  NetworkFileSystemTest() {
    kiln_.use_fake_nvrtc();
    const fs::path runtime = kiln_.folder() / "runtime";
    fs::create_directory(runtime);
    fs::permissions(runtime, fs::perms::owner_all);
    kiln_.set("XDG_RUNTIME_DIR", runtime);
    templates_ = test::write_tiny_templates(kiln_);
  }

  /// Every verb that looks at the cache, in an order in which each has work.
  [[nodiscard]] std::vector<test::KilnProgram::Arguments> verbs() const {
    return {{"warm", "--template-dir", templates_, "--template", "tiny_fwd", "--arch",
             "9.0"},
            {"warm", "--template-dir", templates_, "--template", "tiny_fwd", "--arch",
             "9.0"},
            {"ls"},
            {"stats"},
            {"verify"},
            {"doctor"},
            {"trim", "--max-size", "1B"},
            {"clear", "--all", "--yes"}};
  }

  test::KilnProgram kiln_;
  std::string templates_;
};

/// Else what follows would prove nothing.
TEST_F(NetworkFileSystemTest, TheLockCallsOfTheProgramAreSeen) {
  Preload{.network = {}, .locks = kiln_.cache_dir(), .clock = {}}.into(kiln_);
  for (const auto& verb : verbs()) std::ignore = kiln_.run(verb);
  const auto calls = Preload::lock_calls(kiln_);
  EXPECT_THAT(calls, Contains(HasSubstr("/locks/"))) << "the locks of keys";
  EXPECT_THAT(calls, Contains(EndsWith("/slots")));
  EXPECT_THAT(calls, Contains(EndsWith("/counters")));
  EXPECT_THAT(calls, Contains(HasSubstr("/index.sqlite"))) << "SQLite's own";
}

TEST_F(NetworkFileSystemTest, fault_23_NoVerbMakesALockCallOnANetworkFileSystem) {
  Campaign campaign;
  const fs::path root = kiln_.cache_dir();
  Preload{.network = root, .locks = root, .clock = {}}.into(kiln_);
  for (const auto& verb : verbs()) {
    campaign.injected();
    const test::Finished finished = kiln_.start(verb).finish(kGoodTime);
    if (finished.status != 0 && verb.front() != "doctor")
      campaign.wrong(verb.front() + ": " + finished.text());
    if (verb.front() == "doctor") {
      EXPECT_THAT(finished.out, AllOf(HasSubstr("locks: work in " +
                                                (kiln_.folder() / "runtime").native()),
                                      HasSubstr("no index here")));
    }
  }
  for (const auto& call : Preload::lock_calls(kiln_)) campaign.wrong(call);
  EXPECT_FALSE(fs::exists(root / "index.sqlite"));
  EXPECT_FALSE(fs::exists(root / "counters"));
  EXPECT_FALSE(fs::exists(root / "locks"));
  EXPECT_TRUE(fs::exists(kiln_.folder() / "runtime" / "kiln"))
      << "the locks are on this machine";
}

TEST_F(NetworkFileSystemTest, fault_23_TwoWarmsThereStillShareTheWork) {
  Campaign campaign;
  const fs::path root = kiln_.cache_dir();
  Preload{.network = root, .locks = root, .clock = {}}.into(kiln_);
  test::KilnProgram::Arguments verb = verbs().front();
  verb.emplace_back("--json");
  test::Running one = kiln_.start(verb);
  test::Running other = kiln_.start(verb);
  const auto first = one.finish(kGoodTime).json();
  const auto second = other.finish(kGoodTime).json();
  campaign.injected(2);
  EXPECT_EQ(first["compiled"].get<int>() + second["compiled"].get<int>(), 6)
      << "each once: " << first << second;
  for (const auto& call : Preload::lock_calls(kiln_)) campaign.wrong(call);
}

TEST_F(NetworkFileSystemTest, fault_46_SeedsThereAreReadWithoutALock) {
  Campaign campaign;
  ASSERT_EQ(kiln_.run(verbs().front()).status, 0);
  const fs::path far = kiln_.folder() / "far";
  fs::create_directory(far);
  ASSERT_EQ(kiln_.run({"pack", "-o", far / "job.kpack"}).status, 0);
  fs::rename(kiln_.cache_dir(), far / "root");
  Preload{.network = far, .locks = far, .clock = {}}.into(kiln_);
  kiln_.set("KILN_NO_JIT", "1");
  for (const char* const seed : {"job.kpack", "root"}) {
    kiln_.set("KILN_SEED", far / seed);
    kiln_.set("KILN_CACHE_DIR", kiln_.folder() / ("beside " + std::string(seed)));
    campaign.injected();
    auto verb = verbs().front();
    verb.emplace_back("--json");
    const auto report = kiln_.start(verb).finish(kGoodTime).json();
    for (const auto& entry : report["entries"]) {
      if (entry["outcome"] != "hit" || entry["tier"] != "seed")
        campaign.wrong(entry.dump());
    }
    EXPECT_EQ(report["hits"], 6) << report.dump(1);
  }
  for (const auto& call : Preload::lock_calls(kiln_)) campaign.wrong(call);
}

TEST_F(NetworkFileSystemTest, fault_23_AProgramWithTheLibraryMakesNoLockCallThere) {
  Campaign campaign;
  const test::SimulatedDriver driver("9.0");
  kiln_.set("KILN_DRIVER", driver.path());
  const fs::path root = kiln_.cache_dir();
  Preload{.network = root, .locks = root, .clock = {}}.into(kiln_);
  for (const char* says : {" 0 found in the cache", "0 compiled, "}) {
    campaign.injected();
    const auto finished = kiln_.run_in_shell("kiln-example-prefetch");
    if (finished.status != 0 || finished.out.find(says) == std::string::npos)
      campaign.wrong(finished.text());
  }
  for (const auto& call : Preload::lock_calls(kiln_)) campaign.wrong(call);
  EXPECT_FALSE(fs::exists(root / "index.sqlite"));
}

}  // namespace
}  // namespace kiln
