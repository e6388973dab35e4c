// Who may go before whom; prefetches; what the environment switches.

#include <fmt/format.h>
#include <pthread.h>
#include <sys/wait.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "library_service.h"
#include "tests/support/is_error.h"
#include "tests/support/kernel_sources.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"

namespace kiln {
namespace {

using test::kSoftmax;
using test::LibraryTest;
using test::SimulatedDriver;
using Kind = Event::Kind;

class LibraryLifetimeTest : public LibraryTest {
 protected:
  [[nodiscard]] static std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(LibraryLifetimeTest, AKernelOutlivesItsServiceAndTheLastOneUnloadsIt) {
  const SimulatedDriver driver;
  std::optional<Kernel> kernel;
  {
    auto service = open(driver);
    kernel = *service->get(small_source(), service->devices().at(0));
  }
  EXPECT_TRUE(kernel->launch(Geometry{}, nullptr, nullptr, 1, 1.0F));
  EXPECT_EQ(driver.alive(KILN_SIMULATED_MODULES), 1U);
  kernel.reset();
  EXPECT_EQ(driver.alive(KILN_SIMULATED_MODULES), 0U);
  EXPECT_EQ(driver.alive(KILN_SIMULATED_CONTEXTS), 0U);
}

TEST_F(LibraryLifetimeTest, AServiceOutlivesItsKernelsAndKeepsThemLoaded) {
  const SimulatedDriver driver;
  auto service = open(driver);
  const Request request = small_source();
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(service->get(request, service->devices().at(0)));
  EXPECT_EQ(driver.loads(), 1U);
  service.reset();
  EXPECT_EQ(driver.alive(KILN_SIMULATED_MODULES), 0U)
      << "a request that is still there keeps no module";
}

TEST_F(LibraryLifetimeTest, ARequestUsedWithTwoServicesBelongsToNeither) {
  const SimulatedDriver driver;
  const Request request = small_source();
  for (int i = 0; i < 3; ++i) {
    auto service = open(driver);
    ASSERT_TRUE(service->get(request, service->devices().at(0)));
    ASSERT_TRUE(service->get(request, service->devices().at(0)));
    EXPECT_EQ(service->statistics().loaded, 1U);
    EXPECT_EQ(service->statistics().memory_hits, 1U);
  }
}

TEST_F(LibraryLifetimeTest, AMovedServiceGoesOn) {
  const SimulatedDriver driver;
  auto service = open(driver);
  ASSERT_TRUE(service->get(small_source(), service->devices().at(0)));
  Service moved = *std::move(service);
  EXPECT_TRUE(moved.get(small_source(), moved.devices().at(0)));
  auto other = open(driver);
  moved = *std::move(other);
  EXPECT_TRUE(moved.get(small_source(), moved.devices().at(0)));
}

TEST_F(LibraryLifetimeTest, WhatWasMovedFromTakesAnother) {
  const SimulatedDriver driver;
  auto service = open(driver);
  const Device device = service->devices().at(0);
  Request request = small_source();
  Kernel kernel = *service->get(request, device);
  const Kernel taken = std::move(kernel);
  const Request asked = std::move(request);
  Service moved = *std::move(service);
  request = asked;  // NOLINTBEGIN(bugprone-use-after-move): as their headers allow
  kernel = taken;
  service = std::move(moved);
  moved = *open(driver);
  EXPECT_TRUE(kernel.launch(Geometry{}, nullptr, nullptr, 1, 1.0F));
  for (Service* const each : {&*service, &moved})
    EXPECT_TRUE(each->get(request, each->devices().at(0)));
  // NOLINTEND(bugprone-use-after-move)
}

TEST_F(LibraryLifetimeTest, APrefetchedKernelIsThereWithoutABuildOfItsOwn) {
  const SimulatedDriver driver("8.6,9.0");
  auto service = open(driver);
  for (const Device& device : service->devices())
    ASSERT_TRUE(service->prefetch(small_source(), device));
  ASSERT_TRUE(test::eventually(30s, [&] { return service->statistics().loaded == 2; }));
  for (const Device& device : service->devices())
    ASSERT_TRUE(service->get(small_source(), device));
  EXPECT_EQ(service->statistics().compiled, 2U);
  EXPECT_EQ(service->statistics().memory_hits, 2U);
}

TEST_F(LibraryLifetimeTest, APrefetchTellsAtOnceWhatIsWrongWithTheRequest) {
  const SimulatedDriver driver;
  auto service = open(driver);
  const Device device = service->devices().at(0);
  EXPECT_EQ(service->prefetch({"no_such_kernel", {}}, device).error().code,
            ErrorCode::kNotFound);
  // What only a build finds out is an event, and told again by get().
  const Request broken = Request::from_source({.source = "no CUDA"});
  ASSERT_TRUE(service->prefetch(broken, device));
  ASSERT_TRUE(test::eventually(30s, [&] { return service->statistics().failed == 1; }));
  EXPECT_EQ(service->get(broken, device).error().code, ErrorCode::kCompileFailed);
}

TEST_F(LibraryLifetimeTest, AServiceThatEndsDropsItsPrefetches) {
  const SimulatedDriver driver;
  auto service = open(driver);
  for (int i = 0; i < 20; ++i) {
    const std::string source = test::endless_kernel() + "// " + std::to_string(i);
    ASSERT_TRUE(service->prefetch(Request::from_source({.source = source}),
                                  service->devices().at(0)));
  }
  ASSERT_TRUE(
      test::eventually(30s, [] { return !test::children_of(::getpid()).empty(); }));
  const auto began = std::chrono::steady_clock::now();
  service.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 10s) << "none was waited for";
  EXPECT_THAT(test::children_of(::getpid()), IsEmpty());
}

TEST_F(LibraryLifetimeTest, WhatACallbackThrowsReachesNobody) {
  const SimulatedDriver driver;
  Options options = this->options(driver);
  std::atomic<int> calls = 0;
  options.on_event = [&](const Event&) {
    ++calls;
    throw std::runtime_error("of the callback's");
  };
  auto service = open(options);
  EXPECT_TRUE(service->get(small_source(), service->devices().at(0)));
  EXPECT_EQ(calls, 2);
}

TEST_F(LibraryLifetimeTest, NoJitServesHitsAndRefusesMisses) {
  const SimulatedDriver driver;
  {
    auto service = open(driver);
    ASSERT_TRUE(service->get(small_source(), service->devices().at(0)));
  }
  Options options = this->options(driver);
  options.no_jit = true;
  auto service = open(options);
  const Device device = service->devices().at(0);
  EXPECT_TRUE(service->get(small_source(), device));
  const auto miss = service->get(small_source(1), device);
  EXPECT_THAT(miss, test::IsError(ErrorCode::kUnavailable,
                                  HasSubstr("Options::no_jit forbids")));
  ::setenv("KILN_NO_JIT", "1", 1);
  service = open(driver);
  ::unsetenv("KILN_NO_JIT");
  EXPECT_THAT(service->get(small_source(1), device).error().message,
              HasSubstr("KILN_NO_JIT forbids"));
}

TEST_F(LibraryLifetimeTest, KilnDisableSwitchesKernelsOff) {
  const SimulatedDriver driver;
  ::setenv("KILN_DISABLE", "scaled_masked_*,scaled_softmax_bwd", 1);
  auto service = open(driver);
  ::unsetenv("KILN_DISABLE");
  const Device device = service->devices().at(0);
  for (const char* name : {"scaled_masked_softmax_fwd", "scaled_softmax_bwd"}) {
    const auto refused = service->get({name, {{"dtype", "f16"}}}, device);
    ASSERT_THAT(refused, test::IsError(ErrorCode::kUnavailable));
    EXPECT_THAT(
        refused.error().message,
        AllOf(HasSubstr(" is switched off by KILN_DISABLE ("), HasSubstr(name)));
    EXPECT_FALSE(service->prefetch({name, {{"dtype", "f16"}}}, device));
  }
  EXPECT_TRUE(service->get(kSoftmax, device));
  EXPECT_TRUE(service->get(small_source(), device));
}

TEST_F(LibraryLifetimeTest, TheOptionThatSwitchedAKernelOffIsNamed) {
  const SimulatedDriver driver;
  Options options = this->options(driver);
  options.disable = {{"rope_*"}};
  auto service = open(options);
  const auto refused =
      service->get({"rope_fwd", {{"dtype", "f16"}}}, service->devices().at(0));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "rope_fwd is switched off by Options::disable (rope_*)");
}

TEST_F(LibraryLifetimeTest, TheOptionOfALibraryThatIsNotThereIsNamed) {
  const SimulatedDriver driver;
  const auto refusal = [&](auto member, const char* value) {
    Options options = this->options(driver);
    options.*member = value;
    auto service = Service::open(options);
    if (!service)
      return service.error().message;
    const auto kernel = service->get(small_source(), service->devices().at(0));
    return kernel ? "no error" : kernel.error().message;
  };
  EXPECT_THAT(refusal(&Options::nvrtc, "/no/nvrtc"),
              HasSubstr(": Options::nvrtc is /no/nvrtc: "));
  EXPECT_THAT(refusal(&Options::driver, "/no/driver"),
              StartsWith("Options::driver is /no/driver: "));
  EXPECT_THAT(refusal(&Options::worker, "/no/worker"),
              HasSubstr("Options::worker names /no/worker"));
}

TEST_F(LibraryLifetimeTest, KilnRecordWritesAManifestOfWhatWasAskedFor) {
  const SimulatedDriver driver("8.6,9.0");
  Options options = this->options(driver);
  options.record = temp_.path() / "asked.jsonl";
  auto service = open(options);
  for (const Device& device : service->devices()) {
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(service->get(kSoftmax, device));
      ASSERT_TRUE(service->get(small_source(), device));
    }
  }
  const std::string text = text_of(*options.record);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("scaled_softmax_fwd"), HasSubstr("\"8.6\""),
                          HasSubstr("\"9.0\""), HasSubstr("__global__")));
  Options unwritable = options;
  unwritable.record = temp_.path() / "no" / "such" / "folder";
  EXPECT_THAT(Service::open(unwritable).error().message, HasSubstr("no/such/folder"));
}

TEST_F(LibraryLifetimeTest, SettingsThatCannotBeAreNamed) {
  const SimulatedDriver driver;
  Options options = this->options(driver);
  options.jobs = 0;
  EXPECT_THAT(Service::open(options).error().message, HasSubstr("Options::jobs"));
  options = this->options(driver);
  options.compile_timeout = std::chrono::milliseconds::max();
  EXPECT_THAT(Service::open(options).error().message, HasSubstr("compile_timeout"));
  options = this->options(driver);
  options.template_dirs = {"/no/such/folder"};
  EXPECT_THAT(Service::open(options).error().message, HasSubstr("/no/such/folder"));
  options = this->options(driver);
  options.driver = temp_.path() / "libcuda.so.1";
  EXPECT_THAT(Service::open(options).error().message, HasSubstr("libcuda.so.1"));
}

TEST_F(LibraryLifetimeTest, WithoutACacheKernelsAreKeptInMemory) {
  const SimulatedDriver driver;
  Options options = this->options(driver);
  options.cache_dir = "/proc/kiln";  // nobody can make that
  auto service = open(options);
  ASSERT_TRUE(service->get(small_source(), service->devices().at(0)));
  ASSERT_TRUE(service->get(small_source(), service->devices().at(0)));
  EXPECT_EQ(service->statistics().compiled, 1U);
  EXPECT_EQ(service->statistics().not_stored, 1U);
}

/// Runs `call` in a thread that is cancelled meanwhile. It comes to its end, and only
/// then the thread does.
template <typename Call>
void expect_uncancelled(const Call& call) {
  struct State {
    const Call& call;
    std::atomic<bool> has_begun = false;
    std::atomic<bool> has_ended = false;
    std::atomic<bool> goes_on = false;
  } state{.call = call};
  pthread_t thread{};
  ASSERT_EQ(::pthread_create(
                &thread, nullptr,
                [](void* given) -> void* {
                  auto& mine = *static_cast<State*>(given);
                  mine.has_begun = true;
                  mine.call();
                  mine.has_ended = true;
                  ::pthread_testcancel();
                  mine.goes_on = true;
                  return nullptr;
                },
                &state),
            0);
  EXPECT_TRUE(test::eventually(10s, [&] { return state.has_begun.load(); }));
  std::this_thread::sleep_for(200ms);
  ASSERT_EQ(::pthread_cancel(thread), 0);
  void* result = nullptr;
  ASSERT_EQ(::pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_TRUE(state.has_ended);
  EXPECT_FALSE(state.goes_on);
}

TEST_F(LibraryLifetimeTest, AThreadThatIsCancelledFinishesItsCall) {
  const SimulatedDriver driver;
  Options fake = options(driver);
  fake.nvrtc = test::paths::kFakeNvrtc;
  fake.compile_timeout = 1s;
  ::setenv("KILN_FAKE_NVRTC", "hang", 1);
  auto service = open(fake);
  ::unsetenv("KILN_FAKE_NVRTC");
  const Device device = service->devices().at(0);
  expect_uncancelled([&] {
    EXPECT_EQ(service->get(small_source(), device).error().code, ErrorCode::kTimeout);
  });
  // Its end stops a build, and waits for threads.
  ASSERT_TRUE(service->prefetch(small_source(1), device));
  expect_uncancelled([&] {
    int before = 0;
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    std::this_thread::sleep_for(400ms);  // cancelled by the time that the call begins
    ::pthread_setcancelstate(before, nullptr);
    service.reset();
  });
}

}  // namespace
}  // namespace kiln
