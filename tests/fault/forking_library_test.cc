// Row 31 for programs with the library: a forked child is told, whatever the threads of
// its parent were doing, and neither waits for them nor takes anything from them.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/integration/library/library_service.h"
#include "tests/support/child_process.h"
#include "tests/support/fault/campaign.h"

namespace kiln {
namespace {

using namespace std::chrono_literals;
using test::Campaign;
using test::ChildProcess;
using test::SimulatedDriver;

class ForkingLibraryTest : public test::LibraryTest {
 protected:
  ForkingLibraryTest() { ::setenv("KILN_FAKE_NVRTC", "", 1); }

  [[nodiscard]] Options fast(const SimulatedDriver& driver) {
    Options made = options(driver);
    made.nvrtc = KILN_TEST_FAKE_NVRTC;
    return made;
  }
  static bool is_told(const Error& error) {
    return error.code == ErrorCode::kUnavailable &&
           error.message.find("forked") != std::string::npos;
  }
};

TEST_F(ForkingLibraryTest, fault_31_AForkedChildIsToldAndItsParentGoesOn) {
  Campaign campaign;
  const SimulatedDriver driver;
  auto service = open(fast(driver));
  const Device device = service->devices().at(0);
  const Request request = small_source();
  ASSERT_TRUE(service->get(request, device));
  ASSERT_TRUE(service->prefetch(small_source(1), device));
  ChildProcess child([&] {
    ::alarm(30);
    const auto known = service->get(request, device);
    const auto unknown = service->get(small_source(2), device);
    const bool told = !known && is_told(known.error()) && !unknown &&
                      is_told(unknown.error()) &&
                      !service->prefetch(small_source(3), device);
    service.reset();  // hangs on no thread or lock of the parent's
    return told ? 0 : 1;
  });
  campaign.injected();
  if (const int code = child.wait(); code != 0)
    campaign.wrong("the child ended with " + std::to_string(code));
  EXPECT_TRUE(service->get(small_source(4), device));
}

TEST_F(ForkingLibraryTest, fault_31_ForksWhileThreadsGetAndLoadDeadlockNobody) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "A sanitizer's own locks do not survive a fork beside busy threads";
#endif
  Campaign campaign;
  const int forks = 40 * static_cast<int>(test::fault_length());
  const SimulatedDriver driver;
  Options quiet = fast(driver);
  quiet.on_event = {};
  auto service = open(quiet);
  const Device device = service->devices().at(0);
  const Request known = small_source();
  ASSERT_TRUE(service->get(known, device));
  std::atomic<bool> over = false;
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; !over; ++round) {
        // From memory by the request, by its spelling, by a build, by a prefetch.
        const bool got =
            i == 0   ? service->get(known, device).has_value()
            : i == 1 ? service->get(small_source(), device).has_value()
            : i == 2 ? service->get(small_source(1000 + round), device).has_value()
                     : service->prefetch(small_source(1'000'000 + round), device)
                           .has_value();
        failed += got ? 0 : 1;
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  std::vector<ChildProcess> children;
  for (int i = 0; i < forks; ++i) {
    children.emplace_back([&, i] {
      ::alarm(30);
      const auto refused = service->get(i % 2 == 0 ? known : small_source(i), device);
      if (refused || !is_told(refused.error()))
        return 1;
      std::ignore = service->statistics();
      service.reset();
      // One of its own: what a real driver says in a child, the simulated one does not.
      auto own = Service::open(quiet);
      return own && own->get(known, own->devices().at(0)) ? 0 : 2;
    });
    campaign.injected();
    std::this_thread::sleep_for(3ms);
  }
  for (ChildProcess& child : children) {
    if (const int code = child.wait(); code != 0)
      campaign.wrong("a child ended with " + std::to_string(code));
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_TRUE(service->get(small_source(4), device));
}

}  // namespace
}  // namespace kiln
