// Rows 1, 19 and 21: a process that dies at every system call of what changes a cache.

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/fault/syscall_tracer.h"
#include "tests/support/in_threads.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

using test::Campaign;
using test::Fate;
using test::ReferenceObject;
using test::SystemCall;
using test::Traced;

constexpr int kObjects = 6;

class SyscallKillTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::can_trace())
      GTEST_SKIP() << "A PROCESS MAY NOT TRACE ITS CHILD HERE: kills at system calls "
                      "were not tested";
  }

  [[nodiscard]] CacheOptions options() const {
    CacheOptions options;
    options.root = dir_.path() / "root";
    return options;
  }

  /// A root in which objects 0 to `count` - 1 are, and nothing else.
  void start_with(int count) const {
    const fs::path made = dir_.path() / ("made-" + std::to_string(count));
    if (!fs::exists(made)) {
      CacheOptions options = this->options();
      options.root = made;
      const auto cache = Cache::open(options);
      for (int i = 0; i < count; ++i)
        ASSERT_EQ(cache->publish(*ReferenceObject(i)).outcome, Published::kStored);
    }
    const CacheOptions options = this->options();
    fs::remove_all(options.root);
    fs::copy(made, options.root, fs::copy_options::recursive);
    // The first one was used last, each by a minute.
    const auto now = fs::file_time_type::clock::now();
    for (int i = 0; i < count; ++i)
      fs::last_write_time(Layout(options.root).object(ReferenceObject(i).key()),
                          now - std::chrono::minutes(i + 1));
  }

  /// Which of `count` objects a trim removes that nobody kills.
  [[nodiscard]] std::vector<bool> removed_by_a_trim(int count,
                                                    std::uint64_t limit_bytes) const {
    start_with(count);
    const auto cache = Cache::open(options());
    TrimOptions trim;
    trim.limit_bytes = limit_bytes;
    trim.minimum_age = std::chrono::seconds(0);
    EXPECT_TRUE(cache->trim(trim));
    std::vector<bool> removed;
    for (int i = 0; i < count; ++i)
      removed.push_back(!fs::exists(cache->layout().object(ReferenceObject(i).key())));
    return removed;
  }

  /// Kills `body` at each of its system calls, by default at those that can change a
  /// file, in a root with `count` objects each time. Then nothing is wrong or damaged,
  /// nothing is lost that `may_lose` does not allow, and the root is as good as before.
  void kill_everywhere(int count, const std::function<int()>& body,
                       const std::function<bool(int)>& may_lose) {
    Campaign campaign;
    start_with(count);
    const Traced whole = test::trace(body, [](const SystemCall&) { return Fate{}; });
    ASSERT_EQ(whole.status, 0) << "left alone it does not work";
    int positions = 0;
    for (int at = 0; at < static_cast<int>(whole.calls.size()); ++at) {
      if (test::fault_length() == 1 &&
          !test::changes_files(whole.calls[static_cast<std::size_t>(at)]))
        continue;
      ++positions;
      start_with(count);
      const Traced traced = test::trace(body, [at](const SystemCall& call) {
        return call.position == at ? Fate::killed() : Fate{};
      });
      // Threads may take turns otherwise than before, so the last ones may not be met.
      if (traced.status == -SIGKILL)
        campaign.injected();
      check(campaign, count, at, may_lose);
      ASSERT_FALSE(traced.timed_out) << "at system call " << at;
      ASSERT_FALSE(HasFailure()) << "at system call " << at;
    }
    std::printf("%d positions of %zu system calls\n", positions, whole.calls.size());
    EXPECT_GT(campaign.injected_so_far(), positions / 2);
  }

  void check(Campaign& campaign, int count, int at,
             const std::function<bool(int)>& may_lose) const {
    const std::string after = "after a kill at system call " + std::to_string(at);
    const auto cache = Cache::open(options());
    campaign.check_hits(*cache, kObjects, after);
    for (int i = 0; i < count; ++i) {
      if (!may_lose(i) && !cache->find(ReferenceObject(i).key()))
        campaign.wrong("object " + std::to_string(i) + " is lost " + after);
    }
    const auto verified = cache->verify({});
    if (!verified || !verified->problems.empty())
      campaign.wrong("verify finds damage " + after);
    const auto listed = cache->list({});
    const auto walked = cache->walk({}, Damaged::kInclude);
    if (!listed || !walked || listed->size() != walked->size())
      campaign.wrong("ls and the objects differ " + after);
    if (cache->publish(*ReferenceObject(kObjects)).outcome != Published::kStored)
      campaign.wrong("nothing can be published " + after);
  }

  const test::TempDir dir_;
};

bool nothing(int) {
  return false;
}

TEST_F(SyscallKillTest, fault_01_AKillAtAnySystemCallOfAPublishLeavesItAbsentOrWhole) {
  kill_everywhere(
      2,
      [this] {
        const auto cache = Cache::open(options());
        ReferenceObject added(2);
        test::begin_faults();
        const auto outcome = cache->publish(*added).outcome;
        cache->flush(std::chrono::seconds(5));
        test::end_faults();
        return outcome == Published::kStored ? 0 : 1;
      },
      nothing);
}

// As unpack and pull publish.
TEST_F(SyscallKillTest, fault_01_AKillAmongThreadsThatPublishLeavesEachAbsentOrWhole) {
  kill_everywhere(
      2,
      [this] {
        const auto cache = Cache::open(options());
        std::atomic<int> stored = 0;
        test::begin_faults();
        test::in_threads(3, [&](int i) {
          stored +=
              cache->publish(*ReferenceObject(2 + i)).outcome == Published::kStored;
        });
        test::end_faults();
        return stored == 3 ? 0 : 1;
      },
      nothing);
}

TEST_F(SyscallKillTest, fault_01_AKillAtAnySystemCallOfTheFirstUseLeavesAUsableRoot) {
  kill_everywhere(
      0,
      [this] {
        test::begin_faults();
        {
          const auto cache = Cache::open(options());
          ReferenceObject added(0);
          if (cache->publish(*added).outcome != Published::kStored)
            return 1;
        }
        test::end_faults();
        return 0;
      },
      nothing);
}

TEST_F(SyscallKillTest, fault_21_AKillAtAnySystemCallOfATrimHurtsNoObjectThatStays) {
  constexpr std::uint64_t kLimit = 9000;
  const std::vector<bool> removed = removed_by_a_trim(4, kLimit);
  ASSERT_THAT(removed, Contains(true));
  ASSERT_THAT(removed, Contains(false));
  kill_everywhere(
      4,
      [this] {
        const auto cache = Cache::open(options());
        TrimOptions trim;
        trim.limit_bytes = kLimit;
        trim.minimum_age = std::chrono::seconds(0);
        test::begin_faults();
        const auto trimmed = cache->trim(trim);
        test::end_faults();
        return trimmed && trimmed->removed > 0 ? 0 : 1;
      },
      [&](int object) { return removed[static_cast<std::size_t>(object)]; });
}

TEST_F(SyscallKillTest, fault_19_AKillAtAnySystemCallOfAnIndexRebuildLosesNothing) {
  kill_everywhere(
      4,
      [this] {
        fs::remove(dir_.path() / "root/index.sqlite");
        const auto cache = Cache::open(options());
        test::begin_faults();
        const auto listed = cache->list({});
        test::end_faults();
        return listed && listed->size() == 4 ? 0 : 1;
      },
      nothing);
}

TEST_F(SyscallKillTest, fault_19_AKillAtAnySystemCallOfAnIndexWriteLosesNothing) {
  kill_everywhere(
      4,
      [this] {
        const auto cache = Cache::open(options());
        ReferenceObject added(4);
        if (!cache->list({}) || cache->publish(*added).outcome != Published::kStored)
          return 1;
        test::begin_faults();
        cache->flush(std::chrono::seconds(5));
        test::end_faults();
        return 0;
      },
      nothing);
}

TEST_F(SyscallKillTest, fault_12_AKillAtAnySystemCallOfAQuarantineLosesOnlyTheDamaged) {
  kill_everywhere(
      4,
      [this] {
        const auto cache = Cache::open(options());
        const std::string path = cache->layout().object(ReferenceObject(1).key());
        fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
        fs::resize_file(path, fs::file_size(path) / 2);
        test::begin_faults();
        const auto found = cache->find(ReferenceObject(1).key());
        test::end_faults();
        return found ? 1 : 0;
      },
      [](int i) { return i == 1; });
}

}  // namespace
}  // namespace kiln::cache
