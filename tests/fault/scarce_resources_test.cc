// Row 32: a root that is not there or goes away, and hosts without descriptors and
// without memory. Who asks gets the right kernel or an error that says why.

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/library/library_service.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/run_and_read.h"
#include "tests/support/test.h"
#include "util/log.h"

namespace kiln {
namespace {

using test::SimulatedDriver;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class ScarceResourcesTest : public test::LibraryTest {
 protected:
  ScarceResourcesTest() { ::setenv("KILN_FAKE_NVRTC", "", 1); }

  [[nodiscard]] Options fast(const SimulatedDriver& driver) {
    Options made = options(driver);
    made.nvrtc = test::paths::kFakeNvrtc;
    made.on_event = {};
    return made;
  }

  static bool gets(Service& service, int number) {
    return service.get(small_source(number), service.devices().at(0)).has_value();
  }

  /// Opens a service where there is none yet. Empty, or what the child has to say.
  static std::string open_late(std::optional<Service>& service,
                               const Options& options) {
    if (!service) {
      auto late = Service::open(options);
      if (!late)
        return late.error().message.empty() ? "no reason" : "refused";
      service = *std::move(late);
    }
    return service->devices().empty() ? "no device" : "";
  }
  /// What a child may say of two gets: of each, that it had a kernel or a reason, or
  /// that no service could be opened, with the reason.
  static bool is_answer(const std::string& said) {
    constexpr std::array kAnswers{"had had ", "had refused ", "refused had ",
                                  "refused refused ", "refused"};
    return std::find(kAnswers.begin(), kAnswers.end(), said) != kAnswers.end();
  }

  [[nodiscard]] fs::path root() const { return temp_.path() / "cache"; }
  [[nodiscard]] std::size_t objects() const {
    std::size_t count = 0;
    std::error_code gone;
    for (fs::recursive_directory_iterator at(root() / "objects", gone), end;
         !gone && at != end; at.increment(gone))
      count += at->path().filename().native().size() == 62 ? 1 : 0;
    return count;
  }

  test::Campaign campaign_;
};

// The first here: each thread that this process had would leave memory in reserve.
TEST_F(ScarceResourcesTest, fault_32_AtLimitsOfMemoryThereIsAKernelOrAReason) {
  if (kSanitized)
    GTEST_SKIP() << "A SANITIZER NEEDS MEMORY OF ITS OWN: limits of memory were not "
                    "tried";
  const SimulatedDriver driver;
  std::map<std::string, int> outcomes;
  // Of what only a mapping of its own has room for.
  const Request large =
      Request::from_source({.source = "extern \"C\" __global__ void k() {}\n//" +
                                      std::string(3U << 20U, 'x')});
  for (std::uint64_t more_mib = 0; more_mib < 512; more_mib += more_mib < 64    ? 2
                                                               : more_mib < 128 ? 16
                                                                                : 128) {
    for (const bool opened_before : {true, false}) {
      const auto said = test::run_and_read([&]() -> std::string {
        ::mallopt(M_ARENA_MAX, 1);  // each further one has 64 MiB in reserve
        std::optional<Service> service;
        if (opened_before)
          service = open(fast(driver));
        if (opened_before && !gets(*service, 1))
          return "not even before";
        // What is mapped now, and a little more.
        std::ifstream pages("/proc/self/statm");
        std::uint64_t mapped = 0;
        pages >> mapped;
        const rlim_t limit =
            mapped * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (more_mib << 20U);
        const rlimit little{limit, limit};
        if (::setrlimit(RLIMIT_AS, &little) != 0)
          return "no limit";
        if (auto missing = open_late(service, fast(driver)); !missing.empty())
          return missing;
        std::string outcome;
        for (const Request& request : {large, small_source(2)}) {
          const auto got = service->get(request, service->devices().at(0));
          if (!got && got.error().message.empty())
            return "no reason";
          outcome += got ? "had " : "refused ";
        }
        return outcome;
      });
      campaign_.injected();
      ++outcomes[said];
      if (!is_answer(said))
        campaign_.wrong("with " + std::to_string(more_mib) + " MiB: " + said);
    }
  }
  for (const auto& [outcome, count] : outcomes)
    std::printf("%d times: %s\n", count, outcome.c_str());
  EXPECT_GT(outcomes["had had "], 0);
  EXPECT_LT(outcomes["had had "], campaign_.injected_so_far()) << "nothing was scarce";
}

TEST_F(ScarceResourcesTest, fault_06_AServiceThatCannotBeOpenedWaitsForNoCompiler) {
  const SimulatedDriver driver;
  Options wrong = fast(driver);
  wrong.driver = root() / "libcuda.so.1";
  ::setenv("KILN_FAKE_NVRTC", "hang-version", 1);
  const auto began = std::chrono::steady_clock::now();
  const auto service = Service::open(wrong);
  ::setenv("KILN_FAKE_NVRTC", "", 1);
  campaign_.injected();
  EXPECT_FALSE(service);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 30s) << "its limit is a minute";
}

TEST_F(ScarceResourcesTest, fault_32_ARootThatIsNotThereIsMadeWithAllAboveIt) {
  const SimulatedDriver driver;
  Options deep = fast(driver);
  deep.cache_dir = root() / "a" / "b" / "c";
  auto service = open(deep);
  campaign_.injected();
  ASSERT_TRUE(gets(*service, 1));
  EXPECT_EQ(objects(), 0U);
  EXPECT_TRUE(fs::exists(root() / "a" / "b" / "c" / "objects"));
}

TEST_F(ScarceResourcesTest, fault_32_ARootThatIsRemovedWhileOpenCostsNobodyItsKernel) {
  const int removals = 30 * static_cast<int>(test::fault_length());
  const SimulatedDriver driver;
  auto service = open(fast(driver));
  std::atomic<bool> over = false;
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; !over; ++i) failed += gets(*service, 1000 * t + i) ? 0 : 1;
    });
  }
  for (int i = 0; i < removals; ++i) {
    std::this_thread::sleep_for(10ms);
    std::error_code busy;  // somebody makes a file in it meanwhile: next time
    fs::remove_all(root(), busy);
    campaign_.injected();
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  if (failed > 0)
    campaign_.wrong(std::to_string(failed) + " kernels were not had");
  // What is still being written down makes new files for a moment.
  EXPECT_TRUE(test::eventually(10s, [&] {
    std::error_code busy;
    fs::remove_all(root(), busy);
    return !busy && !fs::exists(root());
  }));
  EXPECT_TRUE(gets(*service, 100'000));
  EXPECT_EQ(objects(), 1U) << "what is built now is stored again";
  auto another = open(fast(driver));
  EXPECT_TRUE(gets(*another, 100'000));
}

TEST_F(ScarceResourcesTest, fault_32_AtEveryLimitOfDescriptorsThereIsAKernelOrAReason) {
  if (kSanitized)
    GTEST_SKIP() << "A SANITIZER NEEDS DESCRIPTORS OF ITS OWN: limits of descriptors "
                    "were not tried";
  const SimulatedDriver driver;
  {
    auto service = open(fast(driver));
    ASSERT_TRUE(gets(*service, 1));
  }
  std::map<std::string, int> outcomes;
  for (unsigned more = 0; more < 40; ++more) {
    for (const bool opened_before : {true, false}) {
      const auto said = test::run_and_read([&]() -> std::string {
        std::optional<Service> service;
        if (opened_before)
          service = open(fast(driver));
        const int next = ::dup(0);
        ::close(next);
        const auto limit = static_cast<rlim_t>(next) + more;
        const rlimit few{limit, limit};
        if (::setrlimit(RLIMIT_NOFILE, &few) != 0)
          return "no limit";
        if (auto missing = open_late(service, fast(driver)); !missing.empty())
          return missing;
        std::string outcome;
        for (const int number : {1, 2}) {
          const auto got = service->get(small_source(number), service->devices().at(0));
          if (!got && got.error().message.find("open files") == std::string::npos &&
              got.error().code != ErrorCode::kUnavailable)
            return "no reason: " + got.error().message;
          outcome += got ? "had " : "refused ";
        }
        return outcome;
      });
      campaign_.injected();
      ++outcomes[said];
      if (!is_answer(said))
        campaign_.wrong("with " + std::to_string(more) + " descriptors: " + said);
    }
  }
  for (const auto& [outcome, count] : outcomes)
    std::printf("%d times: %s\n", count, outcome.c_str());
  EXPECT_GT(outcomes["had had "], 20) << "a few dozens are enough";
}

TEST_F(ScarceResourcesTest, fault_10_ALimitOfFileSizesIsAnErrorAndNeverEndsTheHost) {
  const SimulatedDriver driver;
#ifdef __SANITIZE_THREAD__
  constexpr rlim_t kLeast = 1;  // it writes to a file itself as a process starts
#else
  constexpr rlim_t kLeast = 0;
#endif
  // The object of a small source has some 3 KiB, a worker's output 64 KiB.
  for (const rlim_t limit :
       std::initializer_list<rlim_t>{kLeast, 1, 1000, 2000, 10'000, 100'000}) {
    for (const bool opened_before : {true, false}) {
      const auto said = test::run_and_read([&]() -> std::string {
        std::signal(SIGXFSZ, SIG_DFL);
        // A log in a file, which is at the limit already.
        std::ofstream(temp_.path() / "stderr") << std::string(200'000, 'x');
        const int log_file =
            ::open((temp_.path() / "stderr").c_str(), O_WRONLY | O_APPEND);
        ::dup2(log_file, STDERR_FILENO);
        std::optional<Service> service;
        if (opened_before)
          service = open(fast(driver));
        const rlimit small{limit, limit};
        if (::setrlimit(RLIMIT_FSIZE, &small) != 0)
          return "no limit";
        log(LogLevel::kWarning, {"this line is lost"});
        if (auto missing = open_late(service, fast(driver)); !missing.empty())
          return missing;
        for (const int number : {1, 2}) {
          const auto got = service->get(small_source(number), service->devices().at(0));
          if (!got)
            return got.error().message;
        }
        return "had had";
      });
      campaign_.injected();
      if (said != "had had")
        campaign_.wrong("with " + std::to_string(limit) + " bytes: " + said);
    }
    std::error_code error;
    fs::remove_all(root(), error);
  }
}

}  // namespace
}  // namespace kiln
