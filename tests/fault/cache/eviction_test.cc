// Row 20: readers on a root that loses its files all the time, to a collector with room
// for one object and to somebody who removes whatever he finds.

#include <atomic>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "cache/cache.h"
#include "tests/support/child_process.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

using test::ChildProcess;
using test::ReferenceObject;

constexpr int kKeys = 24;
constexpr int kReaders = 32;
constexpr std::uint64_t kRoomForOne = 6000;
constexpr int kCollectors = 4;

/// What all processes see.
struct Shared {
  std::atomic<bool> over;
  std::atomic<int> hits;
  std::atomic<int> removed;
  std::atomic<int> evicted;
  std::atomic<int> trims;
  std::atomic<int> turned_away;  // by another collector at work
  std::atomic<int> removing;     // collectors that remove an object now
  std::atomic<int> most_removing;
};

/// What the remover spares.
enum class Spare : std::uint8_t { kNothing, kCollectorLock };

/// Counts who removes objects at once, and makes a removal last long enough to be seen.
/// In a cache that nobody clears only collectors remove any.
class WatchedFileSystem final : public test::FaultyFileSystem {
 public:
  explicit WatchedFileSystem(Shared& shared) : shared_(shared) {}

  int unlink(const char* path) override {
    const fs::path file(path);
    if (Layout::is_temporary(file.filename().native()) ||
        file.parent_path().parent_path().filename() != "v1")
      return test::FaultyFileSystem::unlink(path);
    const int now = ++shared_.removing;
    for (int most = shared_.most_removing;
         now > most && !shared_.most_removing.compare_exchange_weak(most, now);) {
    }
    std::this_thread::sleep_for(500us);
    const int result = test::FaultyFileSystem::unlink(path);
    --shared_.removing;
    return result;
  }

 private:
  Shared& shared_;
};

class EvictionTest : public test::CampaignTest {
 protected:
  [[nodiscard]] CacheOptions options() const {
    CacheOptions options;
    options.root = dir_.path() / "root";
    options.limit_bytes = kRoomForOne;
    options.file_system = &files_;
    return options;
  }

  /// As a service does; 0 if the caller has the right bytes in the end.
  int get(Cache& cache, int number) {
    ReferenceObject object(number);
    auto found = cache.find(object.key());
    if (!found) {
      const auto held = cache.lock({.key = object.key(), .look_again = [&] {
                                      found = cache.look_again(object.key());
                                      return found.has_value();
                                    }});
      if (!found) {
        // Not stored where its temporary was removed: it has its bytes all the same.
        std::ignore = cache.publish(*object);
        return 0;
      }
    }
    ++shared_->hits;
    return as_text(found->payload()) == object.payload() ? 0 : 1;
  }

  ChildProcess reader(unsigned seed, int rounds) {
    return ChildProcess([this, seed, rounds] {
      std::mt19937 random(seed);
      const auto cache = Cache::open(options());
      for (int round = 0; round < rounds; ++round) {
        if (const int wrong = get(*cache, static_cast<int>(random() % kKeys));
            wrong != 0)
          return wrong;
      }
      return cache->counters().get(Counter::kUnreadable) == 0 ? 0 : 2;
    });
  }

  ChildProcess collector() {
    return ChildProcess([this] {
      const auto cache = Cache::open(options());
      while (!shared_->over) {
        const auto trimmed =
            cache->trim({.limit_bytes = kRoomForOne, .minimum_age = 0s});
        shared_->trims += trimmed ? 1 : 0;
        if (trimmed)
          shared_->evicted += static_cast<int>(trimmed->removed);
        else if (trimmed.error().code == ErrorCode::kUnavailable)
          ++shared_->turned_away;
        std::this_thread::sleep_for(1ms);
      }
      return 0;
    });
  }

  /// Removes any file: objects, temporaries, locks, index, counters.
  ChildProcess remover(Spare spare) {
    return ChildProcess([this, spare] {
      std::mt19937 random(4);
      const fs::path lock = Layout(options().root).locks() / "trim";
      while (!shared_->over) {
        std::error_code gone;
        for (fs::recursive_directory_iterator at(options().root, gone), end;
             !gone && at != end; at.increment(gone)) {
          std::error_code ignored;
          if (spare == Spare::kCollectorLock && at->path() == lock)
            continue;
          if (random() % 4 == 0 && at->is_regular_file(ignored) &&
              fs::remove(at->path(), ignored))
            ++shared_->removed;
        }
        std::this_thread::sleep_for(1ms);
      }
      return 0;
    });
  }

  /// All of them at once, until the readers are done.
  void run(int collectors, Spare spare) {
    const int rounds = 150 * static_cast<int>(test::fault_length());
    std::vector<ChildProcess> others;
    for (int i = 0; i < collectors; ++i) others.push_back(collector());
    others.push_back(remover(spare));
    std::vector<ChildProcess> readers;
    for (unsigned i = 0; i < kReaders; ++i) readers.push_back(reader(i, rounds));
    for (ChildProcess& each : readers) {
      if (const int code = each.wait(); code != 0)
        campaign_.wrong("a reader ended with " + std::to_string(code));
    }
    shared_->over = true;
    for (ChildProcess& each : others) EXPECT_EQ(each.wait(), 0);
    campaign_.injected(shared_->evicted + shared_->removed);
    EXPECT_GT(shared_->evicted, 0);
    EXPECT_GT(shared_->removed, 0);
    EXPECT_GT(shared_->hits, 0) << "nothing lived long enough to be read";
  }

  const test::TempDir dir_;
  const test::SharedWithChildren<Shared> shared_;
  mutable WatchedFileSystem files_{*shared_};
};

TEST_F(EvictionTest,
       fault_20_ReadersHaveTheRightBytesOrAMissUnderACollectorAndRemovals) {
  run(1, Spare::kNothing);
  CacheOptions roomy = options();
  roomy.limit_bytes = 1U << 30U;
  const auto cache = Cache::open(roomy);
  for (int number = 0; number < kKeys; ++number)
    std::ignore = cache->publish(*ReferenceObject(number));
  for (int number = 0; number < kKeys; ++number) {
    if (!cache->find(ReferenceObject(number).key()))
      campaign_.wrong("object " + std::to_string(number) + " cannot be had");
  }
  campaign_.check_hits(*cache, kKeys, "after it");
  if (const auto verified = cache->verify({}); !verified || !verified->problems.empty())
    campaign_.wrong("verify finds damage");
  EXPECT_EQ(cache->list({}).value().size(), std::size_t{kKeys});
}

/// Those that readers begin after a publish among them. Who removes the very file whose
/// lock says that a collector is at work lets a second one begin, so that one is
/// spared.
TEST_F(EvictionTest, fault_20_ThereIsNeverMoreThanOneCollectorAtATime) {
  run(kCollectors, Spare::kCollectorLock);
  std::printf("%d trims of %d collectors, %d turned away, at most %d at a time\n",
              shared_->trims.load(), kCollectors, shared_->turned_away.load(),
              shared_->most_removing.load());
  if (shared_->most_removing != 1)
    campaign_.wrong(std::to_string(shared_->most_removing) + " removed at once");
  EXPECT_GT(shared_->turned_away, 0) << "no two wanted to collect at once";
}

}  // namespace
}  // namespace kiln::cache
