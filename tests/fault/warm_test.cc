// Row 37: a warm that is killed, interrupted or runs out of room says so, keeps what it
// published, and the next one builds the rest and nothing twice.

#include <sys/mount.h>

#include <filesystem>
#include <random>
#include <string>
#include <thread>

#include "tests/support/child_process.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/namespaces.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

constexpr int kKernels = 32;
constexpr int kNoNamespace = 77;

class WarmTest : public test::CampaignTest {
 protected:
  WarmTest() {
    kiln_.use_fake_nvrtc();
    std::string lines;
    for (int i = 0; i < kKernels; ++i) {
      const std::string n = std::to_string(i);
      lines +=
          json{{"source", "__global__ void k" + n + "(int* x) { *x = " + n + "; }"},
               {"arch", "9.0"}}
              .dump() +
          "\n";
    }
    warming_ = {"warm",   "--manifest", kiln_.write("kernels.jsonl", lines),
                "--jobs", "2",          "--json"};
  }

  [[nodiscard]] int stored() const {
    return static_cast<int>(kiln_.object_files().size());
  }

  /// From nothing, `signal` at a random time, or in every second round as soon as some
  /// kernels are stored, however slow the machine is; what became of it.
  test::Finished warm_until(int signal, int round, std::chrono::microseconds most) {
    EXPECT_EQ(kiln_.run({"clear", "--all", "--yes"}).status, 0);
    test::Running running = kiln_.start(warming_);
    if (round % 2 == 0) {
      std::this_thread::sleep_for(
          std::chrono::microseconds(random_() % static_cast<unsigned>(most.count())));
    } else {
      const int some = 1 + round / 2 % (kKernels - 2);
      EXPECT_TRUE(test::eventually(60s, [&] { return stored() >= some; }));
    }
    running.signal(signal);
    return running.finish();
  }

  /// The rest is built, and nothing that is there already; "" if so.
  std::string resumed() {
    const int done = stored();
    const test::Finished finished = kiln_.run(warming_);
    const json report = finished.json();
    if (finished.status != 0 || report["hits"] != done ||
        report["compiled"] != kKernels - done || report["not_stored"] != 0 ||
        stored() != kKernels)
      return std::to_string(done) + " were stored: " + finished.text();
    return "";
  }

  /// How long one takes here.
  std::chrono::microseconds whole_run() {
    const auto began = std::chrono::steady_clock::now();
    EXPECT_EQ(kiln_.run(warming_).status, 0);
    return std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now() - began);
  }

  test::KilnProgram kiln_;
  test::KilnProgram::Arguments warming_;
  std::mt19937 random_{37};
};

TEST_F(WarmTest, fault_37_KilledAnywhereItIsResumedAndNothingIsBuiltTwice) {
  const int rounds = 12 * static_cast<int>(test::fault_length());
  const auto most = whole_run();
  int partial = 0;
  for (int round = 0; round < rounds; ++round) {
    const test::Finished killed = warm_until(SIGKILL, round, most);
    campaign_.injected();
    partial += stored() > 0 && stored() < kKernels ? 1 : 0;
    if (killed.status != 128 + SIGKILL && killed.status != 0)
      campaign_.wrong(killed.text());
    if (const auto wrong = resumed(); !wrong.empty())
      campaign_.wrong(wrong);
  }
  EXPECT_GT(partial, 0) << "none was killed in the middle";
}

TEST_F(WarmTest, fault_37_InterruptedAnywhereItSaysWhatWasDoneAndIsResumed) {
  const int rounds = 12 * static_cast<int>(test::fault_length());
  const auto most = whole_run();
  int partial = 0;
  for (int round = 0; round < rounds; ++round) {
    const int signal = round / 2 % 2 == 0 ? SIGINT : SIGTERM;
    const test::Finished ended = warm_until(signal, round, most);
    campaign_.injected();
    if (ended.status != 128 + signal && ended.status != 0)
      campaign_.wrong(ended.text());
    // Before it has looked at its arguments it has nothing to say.
    if (!ended.out.empty()) {
      const json report = ended.json();
      const int done = report["compiled"].get<int>() - report["not_stored"].get<int>();
      if (done != stored() || report["requested"] != kKernels ||
          report["failed"] != kKernels - report["compiled"].get<int>())
        campaign_.wrong(std::to_string(stored()) + " are stored: " + report.dump());
      partial += done > 0 && done < kKernels ? 1 : 0;
    }
    if (const auto wrong = resumed(); !wrong.empty())
      campaign_.wrong(wrong);
  }
  EXPECT_GT(partial, 0) << "none was interrupted in the middle";
}

TEST_F(WarmTest, fault_37_OnAFullDiskItEndsSoonSaysSoAndIsResumedOnceThereIsRoom) {
  std::filesystem::create_directory(kiln_.cache_dir());
  test::ChildProcess child([&] {
    const auto& disk = kiln_.cache_dir();
    if (!test::enter_namespaces(CLONE_NEWNS) ||
        !test::mount_small_disk(disk, "size=192k"))
      return kNoNamespace;
    const test::Finished full = kiln_.run(warming_);
    const json report = full.json();
    const int done = stored();
    const int lost = report["not_stored"].get<int>();
    // Each of the two jobs may lose one more than the three in a row that end it.
    const bool said = full.status == 3 && done > 0 && lost >= 3 && lost <= 8 &&
                      report["compiled"] == done + lost &&
                      report["failed"] == kKernels - done - lost &&
                      report["failed"] > 0;
    if (!said) {
      std::fprintf(stderr, "%d are stored: %s\n", done, full.text().c_str());
      return 1;
    }
    if (::mount("none", disk.c_str(), "tmpfs", MS_REMOUNT, "size=16m") != 0)
      return 2;
    const std::string wrong = resumed();
    std::fprintf(stderr, "%s", wrong.c_str());
    return wrong.empty() ? 0 : 3;
  });
  const int code = child.wait();
  if (code == kNoNamespace)
    GTEST_SKIP() << "NO MOUNT NAMESPACES HERE: a full disk was not tried";
  campaign_.injected();
  if (code != 0)
    campaign_.wrong("the child ended with " + std::to_string(code));
}

}  // namespace
}  // namespace kiln
