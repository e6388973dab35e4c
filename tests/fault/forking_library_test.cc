// Row 31 for programs with the library: a forked child is told, whatever the threads of
// its parent were doing, and neither waits for them nor takes anything from them; and a
// program may end while they are at it, from the moment the service is open.

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/integration/library/library_service.h"
#include "tests/support/child_process.h"
#include "tests/support/exit_amid_threads.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using test::ChildProcess;
using test::SimulatedDriver;

class ForkingLibraryTest : public test::LibraryTest {
 protected:
  ForkingLibraryTest() { ::setenv("KILN_FAKE_NVRTC", "", 1); }

  [[nodiscard]] Options fast(const SimulatedDriver& driver) {
    Options made = options(driver);
    made.nvrtc = test::paths::kFakeNvrtc;
    return made;
  }
  static bool is_told(const Error& error) {
    return error.code == ErrorCode::kUnavailable &&
           error.message.find("forked") != std::string::npos;
  }

  /// In a child of the one that opened `service`: 0 if it is told, can let go of it,
  /// and has kernels from one of its own.
  static int use_in_child(std::optional<Service>& service, const Options& own) {
    const auto refused = service->get(small_source(), service->devices().at(0));
    if (refused || !is_told(refused.error()))
      return 1;
    service.reset();  // hangs on no thread or lock of the parent's
    ::setenv("KILN_FAKE_NVRTC", "", 1);
    auto opened = Service::open(own);
    return opened && opened->get(small_source(), opened->devices().at(0)) ? 0 : 2;
  }

  /// Waits for the worker that the thread which looks for NVRTC has asked.
  static bool has_worker() {
    return test::eventually(kBounded,
                            [] { return !test::children_of(::getpid()).empty(); });
  }

  static constexpr auto kBounded = 30s;  // half of what that thread would wait
  static constexpr unsigned kDeadlock = 30;
  test::Campaign campaign_;
};

/// What a program may do with its service as it ends.
[[noreturn]] void leave_it(std::optional<Service> service) {
  std::ignore = new std::optional<Service>(std::move(service));
  test::exit_amid_threads(7);
}
[[noreturn]] void destroy_it(std::optional<Service> service) {
  service.reset();
  test::exit_amid_threads(7);
}
[[noreturn]] void destroy_it_after_main(std::optional<Service> service) {
  static std::optional<Service> global;
  global = std::move(service);
  test::exit_amid_threads(7);
}
constexpr std::array kEnds{leave_it, destroy_it, destroy_it_after_main};

TEST_F(ForkingLibraryTest, fault_31_AHostMayEndWhileItsServiceWaitsForACompiler) {
  const SimulatedDriver driver;
  for (const auto end : kEnds) {
    const test::Signal asks;
    const test::Signal go_on;
    ChildProcess host([&]() -> int {
      ::alarm(kDeadlock);
      ::setenv("KILN_FAKE_NVRTC", "hang-version", 1);
      auto service = open(fast(driver));
      if (!has_worker())
        return 1;
      asks.raise();
      go_on.wait();
      end(std::move(service));
      return 2;
    });
    asks.wait();
    const auto workers = test::children_of(host.pid());
    EXPECT_EQ(workers.size(), 1U);
    go_on.raise();
    campaign_.injected();
    if (const int code = host.wait(); code != 7)
      campaign_.wrong("a host ended with " + std::to_string(code));
    for (const pid_t worker : workers)
      EXPECT_TRUE(
          test::eventually(kBounded, [&] { return !test::is_running(worker); }));
  }
}

TEST_F(ForkingLibraryTest, fault_31_AHostMayForkWhileItsServiceWaitsForACompiler) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer cannot follow threads into a forked child";
#endif
  const SimulatedDriver driver;
  ::setenv("KILN_FAKE_NVRTC", "hang-version", 1);
  auto service = open(fast(driver));
  ASSERT_TRUE(has_worker());
  const auto workers = test::children_of(::getpid());
  for (const bool exits : {false, true}) {
    ChildProcess child([&]() -> int {
      ::alarm(kDeadlock);
      if (exits)
        leave_it(std::move(service));
      return use_in_child(service, fast(driver));
    });
    campaign_.injected();
    if (const int code = child.wait(); code != (exits ? 7 : 0))
      campaign_.wrong("a child ended with " + std::to_string(code));
  }
  ::setenv("KILN_FAKE_NVRTC", "", 1);
  for (const pid_t worker : workers) EXPECT_TRUE(test::is_running(worker));
  const auto began = std::chrono::steady_clock::now();
  service.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, kBounded);
}

TEST_F(ForkingLibraryTest, fault_31_AHostMayEndOrForkAtAnyTimeAfterItsServiceIsOpen) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "A sanitizer's own locks do not survive a fork beside busy threads";
#endif
  const int hosts = 60 * static_cast<int>(test::fault_length());
  const SimulatedDriver driver;
  for (int i = 0; i < hosts; ++i) {
    Options fresh = fast(driver);
    fresh.cache_dir = temp_.path() / std::to_string(i);  // nothing is known of NVRTC
    ChildProcess host([&]() -> int {
      ::alarm(kDeadlock);
      auto service = open(fresh);
      // A search for NVRTC takes some milliseconds, a question to one some more.
      std::this_thread::sleep_for(250us * (i % 60));
      if (i % 2 == 0) {
        ChildProcess child([&] {
          ::alarm(kDeadlock);
          return use_in_child(service, fresh);
        });
        if (const int code = child.wait(); code != 0)
          return 100 + code;
      }
      kEnds[static_cast<std::size_t>(i / 2) % kEnds.size()](std::move(service));
      return 2;
    });
    campaign_.injected();
    if (const int code = host.wait(); code != 7)
      campaign_.wrong("host " + std::to_string(i) + " ended with " +
                      std::to_string(code));
  }
}

TEST_F(ForkingLibraryTest, fault_31_AForkedChildIsToldAndItsParentGoesOn) {
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
  campaign_.injected();
  if (const int code = child.wait(); code != 0)
    campaign_.wrong("the child ended with " + std::to_string(code));
  EXPECT_TRUE(service->get(small_source(4), device));
}

TEST_F(ForkingLibraryTest, fault_31_ForksWhileThreadsGetAndLoadDeadlockNobody) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "A sanitizer's own locks do not survive a fork beside busy threads";
#endif
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
    campaign_.injected();
    std::this_thread::sleep_for(3ms);
  }
  for (ChildProcess& child : children) campaign_.expect_end(child);
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_TRUE(service->get(small_source(4), device));
}

}  // namespace
}  // namespace kiln
