// Row 40 with a real NVRTC: what it says of a source reaches all processes that wait
// for the build, and one of them has built.

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "build/build_options.h"
#include "tests/support/child_process.h"
#include "tests/support/compile_jobs.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/print_name.h"
#include "tests/support/service_requests.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using test::ChildProcess;
using test::PrintTo;

constexpr int kWaiters = 16;

struct WrongSource {
  const char* name;
  const char* text;
  const char* words;  // of the compiler's log
};

class FailedCompileTest : public testing::TestWithParam<WrongSource> {};

TEST_P(FailedCompileTest, fault_40_OneBuildTellsAllProcessesWhatTheCompilerSays) {
  const auto nvrtc = test::real_nvrtc().nvrtc;
  if (nvrtc.empty())
    GTEST_SKIP() << "NO NVRTC HERE: its errors were not shared";
  test::Campaign campaign;
  constexpr auto kLimit = 30s;
  const test::TempDir dir;
  Config config = test::service_config(dir.path() / "cache");
  config.nvrtc = nvrtc;
  config.compile_timeout = kLimit;
  config.jobs = 1;
  // From here on the version is known.
  EXPECT_TRUE(test::keyed(*test::open_service(config), test::small_kernel(0)));
  const test::SharedWithChildren<std::atomic<int>> builds;
  const test::Signal ready;
  const test::Signal go;
  std::vector<ChildProcess> processes;
  for (int i = 0; i < kWaiters; ++i) {
    processes.emplace_back([&] {
      const auto service = test::open_service(config);
      const auto keyed =
          test::keyed(*service, Request::from_source({.source = GetParam().text}));
      ready.raise();
      go.wait();
      if (!keyed)
        return 1;
      const auto failed = service->fetch(*keyed);
      *builds +=
          static_cast<int>(test::counted(*service, cache::Counter::kCompileFailed));
      if (failed || failed.error().code != ErrorCode::kCompileFailed)
        return 2;
      return failed.error().message.find(GetParam().words) != std::string::npos ? 0 : 3;
    });
  }
  for (int i = 0; i < kWaiters; ++i) ready.wait();
  // Without a slot no build ends before all wait for it, however soon it fails.
  const auto cache = cache::Cache::open(cache_options(config));
  auto slot = cache->acquire_slot({});
  for (int i = 0; i < kWaiters; ++i) go.raise();
  std::this_thread::sleep_for(1s);
  slot.slot.release();
  campaign.injected();
  const auto began = Clock::now();
  for (ChildProcess& process : processes) campaign.expect_end(process);
  EXPECT_LT(Clock::now() - began, kLimit + 5s);
  // Whoever had not begun to wait when the first build ended is answered by a second.
  EXPECT_GE(*builds, 1);
  EXPECT_LE(*builds, 2);
}

INSTANTIATE_TEST_SUITE_P(
    Sources, FailedCompileTest,
    testing::Values(WrongSource{"NvrtcError",
                                "__global__ void k(int* x) { *x = missing; }\n",
                                "identifier \"missing\" is undefined"},
                    WrongSource{"PtxasError",
                                "__global__ void k() { asm volatile(\"wrong;\"); }\n",
                                "ptxas"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace kiln
