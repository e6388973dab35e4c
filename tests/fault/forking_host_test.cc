// Row 31: host programs that fork while their threads are in the service, and that end
// while they are. Nobody deadlocks, no lock is lost, and both sides get their kernels.

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <stop_token>
#include <thread>
#include <vector>

#include "cache/sqlite.h"
#include "tests/support/child_process.h"
#include "tests/support/exit_amid_threads.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/service_requests.h"
#include "tests/support/test.h"
#include "util/log.h"

namespace kiln {
namespace {

using test::ChildProcess;

constexpr unsigned kDeadlock = 30;  // seconds; then SIGALRM says so

/// What is logged goes nowhere until this goes out of scope.
class Quiet {
 public:
  Quiet() : before_(::dup(STDERR_FILENO)) {
    const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nothing, STDERR_FILENO);
    ::close(nothing);
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  ~Quiet() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
  }

 private:
  const int before_;
};

class ForkingHostTest : public test::CampaignTest {
 protected:
  ForkingHostTest() { ::setenv("KILN_FAKE_NVRTC", "", 1); }

  [[nodiscard]] Config config() const {
    Config made = test::service_config(temp_.path() / "cache");
    made.nvrtc = test::paths::kFakeNvrtc;
    return made;
  }
  [[nodiscard]] std::unique_ptr<cache::Cache> open_cache() const {
    cache::CacheOptions options;
    options.root = temp_.path() / "cache";
    return cache::Cache::open(options);
  }
  static cache::KeyLock::Acquired lock(cache::Cache& cache) {
    return cache.lock({.key = test::ReferenceObject(1).key()});
  }

  [[nodiscard]] fs::path headers() const { return temp_.path() / "headers"; }
  /// The first look for its key takes what is known of headers.
  [[nodiscard]] Request with_headers(int number) const {
    return Request::from_source({.source = "#include \"number.h\"\n// " +
                                           std::to_string(number) +
                                           "\nextern \"C\" __global__ void k() {}\n",
                                 .include_dirs = {headers()}});
  }

  /// Whether a service of the parent's says in its child that it is one.
  static bool is_told(BuildService& service, int number) {
    const auto fetched = test::fetch(service, test::small_kernel(number));
    return !fetched && fetched.error().code == ErrorCode::kUnavailable &&
           fetched.error().message.find("forked") != std::string::npos;
  }

  /// Whether the service gives the kernel of that number.
  static bool gets(BuildService& service, int number) {
    return test::fetch(service, test::small_kernel(number)).has_value();
  }

  const test::TempDir temp_;
};

TEST_F(ForkingHostTest, fault_31_AForkedChildIsToldAndAServiceOfItsOwnWorks) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer cannot follow threads into a forked child";
#endif
  auto service = test::open_service(config());
  ASSERT_TRUE(gets(*service, 1));
  const auto before = test::keyed(*service, test::small_kernel(1));
  ChildProcess child([&] {
    ::alarm(kDeadlock);
    if (!is_told(*service, 1) || !is_told(*service, 2) || service->fetch(*before))
      return 2;
    service.reset();
    const auto own = test::open_service(config());
    const auto hit = test::fetch(*own, test::small_kernel(1));
    const auto built = test::fetch(*own, test::small_kernel(2));
    return hit && hit->outcome == FetchOutcome::kHit && built &&
                   built->outcome == FetchOutcome::kCompiled
               ? 0
               : 1;
  });
  campaign_.injected();
  if (!gets(*service, 3))
    campaign_.wrong("the parent gets nothing meanwhile");
  if (const int code = child.wait(); code != 0)
    campaign_.wrong("the child ended with " + std::to_string(code));
  EXPECT_EQ(test::fetch(*service, test::small_kernel(2))->outcome, FetchOutcome::kHit);
}

/// In the child the parent's cache can be used, the parent's service says that it is
/// the parent's, and one of its own can be opened.
TEST_F(ForkingHostTest, fault_31_ForksWhileThreadsBuildFindAndLogDeadlockNobody) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "A sanitizer's own locks do not survive a fork beside busy threads";
#endif
  const int forks = 40 * static_cast<int>(test::fault_length());
  const Quiet quiet;
  fs::create_directory(headers());
  std::ofstream(headers() / "number.h") << "#define NUMBER 7\n";
  auto service = test::open_service(config());
  ASSERT_TRUE(gets(*service, 0));
  const auto cache = open_cache();
  std::ignore = cache->publish(*test::ReferenceObject(0));
  std::atomic<bool> over = false;
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; !over; ++round) {
        // One builds, one finds, one lists, one logs; two are mostly at their headers.
        if (i > 3 && !test::keyed(*service, with_headers(round)))
          ++failed;
        if (i < 2 && !gets(*service, i == 0 ? 1000 + round : 0))
          ++failed;
        if (i == 2)
          std::ignore = cache->list({.limit = 3});
        if (i == 3)
          log(LogLevel::kWarning, {"a line that nobody sees"});
        else if (i < 3)
          std::this_thread::sleep_for(1ms);
      }
    });
  }
  std::vector<ChildProcess> children;
  for (int i = 0; i < forks; ++i) {
    children.emplace_back([&, i] {
      ::alarm(kDeadlock);
      log(LogLevel::kWarning, {"a line of the child"});
      if (!cache->find(test::ReferenceObject(0).key()) || !cache->list({}) ||
          cache->publish(*test::ReferenceObject(1 + i)).outcome ==
              cache::Published::kNotStored)
        return 1;
      if (!is_told(*service, i) || test::keyed(*service, with_headers(i)))
        return 3;
      service.reset();  // hangs on no lock or thread of the parent's
      const auto own = test::open_service(config());
      if (!gets(*own, 0) || (i % 8 == 0 && !gets(*own, 1)))
        return 2;
      return 0;
    });
    campaign_.injected();
    std::this_thread::sleep_for(2ms);
  }
  for (ChildProcess& child : children) campaign_.expect_end(child);
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_TRUE(gets(*service, 5000)) << "the parent goes on";
  campaign_.check_hits(*cache, forks + 1, "after the forks");
}

/// SQLite's own locks, of its memory and of its files, stay as its threads left them.
TEST_F(ForkingHostTest, fault_31_ForksWhileThreadsAreInSqliteDeadlockNobody) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "A sanitizer's own locks do not survive a fork beside busy threads";
#endif
  std::atomic<bool> over = false;
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      const fs::path path = temp_.path() / (std::to_string(i) + ".sqlite");
      while (!over) {
        const auto database =
            cache::Database::open(path, cache::Database::Open::kNew, 1s);
        if (!database || !database->execute("CREATE TABLE IF NOT EXISTS t (n); "
                                            "INSERT INTO t VALUES (1); DELETE FROM t"))
          ++failed;
      }
    });
  }
  const int forks = 20 * static_cast<int>(test::fault_length());
  std::vector<ChildProcess> children;
  for (int i = 0; i < forks; ++i) {
    children.emplace_back([&, i] {
      ::alarm(kDeadlock);
      const auto cache = open_cache();
      test::ReferenceObject object(i);
      const bool is_stored =
          cache->publish(*object).outcome != cache::Published::kNotStored;
      cache->flush(20s);
      return is_stored && cache->find(object.key()) && cache->list({}) ? 0 : 1;
    });
    campaign_.injected();
    std::this_thread::sleep_for(2ms);
  }
  for (ChildProcess& child : children) campaign_.expect_end(child);
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  const auto cache = open_cache();
  EXPECT_EQ(cache->list({}).value().size(), static_cast<std::size_t>(forks));
  campaign_.check_hits(*cache, forks, "after the forks");
}

TEST_F(ForkingHostTest, fault_31_AChildHasAnIndexUnlessItsParentHasOneOpen) {
  for (const bool is_open : {true, false}) {
    const auto cache = open_cache();
    ASSERT_TRUE(cache->list({}));  // opens it and closes it
    const auto open = is_open ? cache::Database::open(temp_.path() / "a.sqlite",
                                                      cache::Database::Open::kNew, 1s)
                              : Result<cache::Database>(fail(ErrorCode::kIo, "none"));
    ASSERT_EQ(open.has_value(), is_open);
    ChildProcess child([&] {
      ::alarm(kDeadlock);
      const auto own = open_cache();
      return own->list({}) && own->has_index() != is_open ? 0 : 1;
    });
    campaign_.injected();
    campaign_.expect_end(child);
  }
}

TEST_F(ForkingHostTest, fault_31_AChildMayDestroyAServiceThatLooksForNvrtc) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer cannot follow threads into a forked child";
#endif
  ::setenv("KILN_FAKE_NVRTC", "hang-version", 1);
  std::stop_source stop;
  auto service = BuildService::open(config(), {.stop = stop.get_token()}).value();
  service->toolchains().start_search();
  ASSERT_TRUE(
      test::eventually(30s, [] { return !test::children_of(::getpid()).empty(); }));
  ChildProcess child([&] {
    ::alarm(kDeadlock);
    if (!is_told(*service, 1))
      return 1;
    service.reset();  // the thread is not there to be waited for
    ::setenv("KILN_FAKE_NVRTC", "", 1);
    return gets(*test::open_service(config()), 1) ? 0 : 2;
  });
  campaign_.injected();
  if (const int code = child.wait(); code != 0)
    campaign_.wrong("the child ended with " + std::to_string(code));
  stop.request_stop();
  service.reset();
  ::setenv("KILN_FAKE_NVRTC", "", 1);
}

TEST_F(ForkingHostTest, fault_31_AHostMayEndWhileItsThreadsAreInTheService) {
  const int hosts = 6 * static_cast<int>(test::fault_length());
  for (int i = 0; i < hosts; ++i) {
    ChildProcess host([&]() -> int {
      ::alarm(kDeadlock);
      // As a program has it that leaves everything to the end of the process.
      auto* const service = test::open_service(config()).release();
      static std::atomic<int> next = 0;
      for (int t = 0; t < 4; ++t) {
        std::thread([service, t] {
          for (;;) std::ignore = gets(*service, t < 2 ? 0 : next++ % 64);
        }).detach();
      }
      std::this_thread::sleep_for(20ms * (1 + i));
      test::exit_amid_threads(7);
    });
    campaign_.injected();
    if (const int code = host.wait(); code != 7)
      campaign_.wrong("the host ended with " + std::to_string(code));
  }
  const auto service = test::open_service(config());
  EXPECT_TRUE(gets(*service, 0));
  EXPECT_TRUE(service->cache().verify({}).value().problems.empty());
}

TEST_F(ForkingHostTest, fault_31_AForkedChildNeitherKeepsNorFreesALock) {
  const auto cache = open_cache();
  auto mine = lock(*cache);
  ASSERT_EQ(mine.outcome, cache::LockOutcome::kHeld);
  test::Signal forked;
  test::Signal end;
  ChildProcess child([&] {
    const bool held = mine.lock.held();
    mine.lock.release();  // must not free the parent's
    forked.raise();
    end.wait();
    return held ? 1 : 0;
  });
  forked.wait();
  campaign_.injected();
  cache::KeyLock::LockRequest at_once{.key = test::ReferenceObject(1).key()};
  at_once.wait = false;
  if (cache->lock(at_once).outcome != cache::LockOutcome::kBypassed)
    campaign_.wrong("the child freed it");
  mine.lock.release();
  if (cache->lock(at_once).outcome != cache::LockOutcome::kHeld)
    campaign_.wrong("the child kept it");
  end.raise();
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(ForkingHostTest, fault_31_ALockIsFreeWhenItsOwnerDiesAlthoughAForkedChildLives) {
  test::Signal holds;
  test::Signal end;
  ChildProcess owner([&] {
    const auto cache = open_cache();
    auto held = lock(*cache);
    if (::fork() == 0) {
      holds.raise();
      end.wait();
      ::_exit(0);
    }
    std::this_thread::sleep_for(60s);
    return 1;
  });
  holds.wait();
  owner.signal(SIGKILL);
  owner.wait();
  campaign_.injected();
  const auto acquired = lock(*open_cache());
  if (acquired.outcome != cache::LockOutcome::kHeld || acquired.waited > 5s)
    campaign_.wrong("the child keeps it");
  end.raise();
}

}  // namespace
}  // namespace kiln
