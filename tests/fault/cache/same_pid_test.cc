// Row 30: containers that share a root. In each the process is number 1, and the host
// has the same name.

#include <sys/mount.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <tuple>
#include <vector>

#include "cache/cache.h"
#include "tests/support/child_process.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/namespaces.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

using test::ChildProcess;
using test::ReferenceObject;

constexpr int kNoNamespace = 77;
constexpr int kKeys = 40;

struct Shared {
  std::array<std::atomic<int>, kKeys> builds;
};

class SamePidTest : public test::CampaignTest {
 protected:
  [[nodiscard]] CacheOptions options() const {
    CacheOptions options;
    options.root = dir_.path() / "root";
    options.lock_times = {.heartbeat = 50ms, .no_heartbeat = 1000ms};
    return options;
  }

  /// Process 1 of a container called "node", which is `body`.
  template <typename Body>
  static ChildProcess container(const Body& body) {
    return ChildProcess([body] {
      if (!test::enter_namespaces(CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWNS) ||
          ::sethostname("node", 4) != 0)
        return kNoNamespace;
      ChildProcess first([&] {
        // As a container has it; where that is not allowed, the one of outside stays.
        std::ignore = ::mount("proc", "/proc", "proc", 0, nullptr);
        return ::getpid() == 1 ? body() : 99;
      });
      return first.wait();
    });
  }

  /// 0 where all of them went as they must.
  static int wait_for_all(std::vector<ChildProcess>& containers) {
    int worst = 0;
    for (ChildProcess& each : containers) {
      const int code = each.wait();
      worst = code != 0 ? code : worst;
    }
    return worst;
  }

  /// Several containers that do the same for every key at once, `body(cache)` each;
  /// skips the test where there are none.
  template <typename Body>
  void run_in_containers(const Body& body) {
    constexpr int kContainers = 6;
    test::Signal go;
    std::vector<ChildProcess> containers;
    for (int i = 0; i < kContainers; ++i) {
      containers.push_back(container([&] {
        const auto cache = Cache::open(options());
        go.wait();
        return body(*cache);
      }));
    }
    for (int i = 0; i < kContainers; ++i) go.raise();
    const int worst = wait_for_all(containers);
    if (worst == kNoNamespace)
      GTEST_SKIP() << "NO PID NAMESPACES HERE: equal process numbers were not tried";
    campaign_.injected(kContainers * kKeys);
    if (worst != 0)
      campaign_.wrong("a container ended with " + std::to_string(worst));
  }

  const test::TempDir dir_;
  const test::SharedWithChildren<Shared> shared_;
};

TEST_F(SamePidTest, fault_30_ProcessesOfOneNumberBuildEachKeyOnce) {
  run_in_containers([this](Cache& cache) {
    for (int number = 0; number < kKeys; ++number) {
      ReferenceObject object(number);
      std::optional<StoredObject> found = cache.find(object.key());
      const auto held = cache.lock({.key = object.key(), .look_again = [&] {
                                      found = cache.look_again(object.key());
                                      return found.has_value();
                                    }});
      if (found) {
        if (as_text(found->payload()) != object.payload())
          return 1;
        continue;
      }
      if (held.outcome != LockOutcome::kHeld)
        return 2;
      std::this_thread::sleep_for(2ms);
      ++shared_->builds[static_cast<std::size_t>(number)];
      if (cache.publish(*object).outcome != Published::kStored)
        return 3;
    }
    return 0;
  });
  if (IsSkipped())
    return;
  for (const auto& builds : shared_->builds) EXPECT_EQ(builds, 1);
  campaign_.check_hits(*Cache::open(options()), kKeys, "afterwards");
}

TEST_F(SamePidTest, fault_30_PublishersOfOneNumberWithoutALockDoNotClash) {
  run_in_containers([this](Cache& cache) {
    for (int number = 0; number < kKeys; ++number) {
      const auto outcome = cache.publish(*ReferenceObject(number)).outcome;
      shared_->builds[static_cast<std::size_t>(number)] +=
          outcome == Published::kStored ? 1 : 0;
      if (outcome == Published::kNotStored || outcome == Published::kNondeterministic)
        return 1;
    }
    return 0;
  });
  if (IsSkipped())
    return;
  for (const auto& stored : shared_->builds) EXPECT_EQ(stored, 1);
  const auto cache = Cache::open(options());
  campaign_.check_hits(*cache, kKeys, "afterwards");
  EXPECT_TRUE(cache->verify({}).value().problems.empty());
}

TEST_F(SamePidTest, fault_30_NoLockIsTakenFromALivingHolderOfTheSameNumber) {
  test::Signal holds;
  test::Signal waits;
  const auto key = ReferenceObject(0).key();
  std::vector<ChildProcess> containers;
  containers.push_back(container([&] {
    const auto cache = Cache::open(options());
    auto held = cache->lock({.key = key});
    held.lock.set_phase(Phase::kCompiling);
    holds.raise();
    waits.wait();
    std::this_thread::sleep_for(2500ms);  // longer than a dead one is waited for
    shared_->builds[0] = 1;
    return held.outcome == LockOutcome::kHeld ? 0 : 1;
  }));
  containers.push_back(container([&] {
    const auto cache = Cache::open(options());
    holds.wait();
    waits.raise();
    const auto held = cache->lock({.key = key});
    if (held.outcome != LockOutcome::kHeld)
      return 2;
    return shared_->builds[0] == 1 ? 0 : 3;
  }));
  // Where no namespace can be made nobody would ever say so.
  const int first = containers[0].wait();
  if (first == kNoNamespace)
    GTEST_SKIP() << "NO PID NAMESPACES HERE: equal process numbers were not tried";
  EXPECT_EQ(first, 0);
  campaign_.injected();
  if (const int second = containers[1].wait(); second != 0)
    campaign_.wrong("the waiter ended with " + std::to_string(second));
}

TEST_F(SamePidTest, fault_30_AForkedChildThatIsNumberOneAsWellHoldsNothing) {
  std::vector<ChildProcess> containers;
  containers.push_back(container([&] {
    auto cache = Cache::open(options());
    std::ignore = cache->publish(*ReferenceObject(1));
    std::ignore = cache->list({});  // the index is open, the thread runs
    auto held = cache->lock({.key = ReferenceObject(0).key()});
    if (!held.lock.held())
      return 1;
    if (::unshare(CLONE_NEWPID) != 0)
      return kNoNamespace;
    ChildProcess child([&] {
      if (::getpid() != 1)
        return 2;
      if (held.lock.held())
        return 3;
      // A file of its own, where the parent has that of the lock.
      const int mine = ::memfd_create("mine", MFD_CLOEXEC);
      held.lock.release();
      const bool unhurt = ::lseek(mine, 0, SEEK_END) == 0;
      const bool listed = cache->list({}).has_value();
      const bool found = cache->find(ReferenceObject(1).key()).has_value();
      cache.reset();
      return unhurt && listed && found ? 0 : 4;
    });
    if (const int code = child.wait(); code != 0)
      return code;
    const auto other = Cache::open(options());
    const auto taken = other->lock({.key = ReferenceObject(0).key(), .wait = false});
    return held.lock.held() && taken.outcome == LockOutcome::kBypassed ? 0 : 5;
  }));
  const int worst = wait_for_all(containers);
  if (worst == kNoNamespace)
    GTEST_SKIP() << "NO PID NAMESPACES HERE: equal process numbers were not tried";
  campaign_.injected();
  if (worst != 0)
    campaign_.wrong("the container ended with " + std::to_string(worst));
}

}  // namespace
}  // namespace kiln::cache
