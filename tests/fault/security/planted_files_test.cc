// Row 33: another user has left something in a cache root. Whatever it is and wherever
// it lies, it is neither used nor followed nor waited for, and the victim goes on.

#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <tuple>

#include "cache/cache.h"
#include "tests/fault/security/plants.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

using test::kPlants;
using test::kStranger;
using test::kVictim;
using test::Outside;
using test::Plant;
using test::ReferenceObject;

constexpr int kObjects = 6;
constexpr int kDamaged = 1;

/// As `kiln stats` tells it.
bool refused(Cache& cache, Plant /*plant*/) {
  const auto stats = cache.stats();
  return stats && stats->counters.contains("untrusted");
}

/// In place of a folder: there a file of the victim's own is no plant but in the way.
bool folder_refused(Cache& cache, Plant plant) {
  return plant == Plant::kHardLink || refused(cache, plant);
}

class PlantedFilesTest : public test::CampaignTest {
 protected:
  using Counted = std::function<bool(Cache&, Plant)>;

  void SetUp() override {
    if (!test::User::can_become_another())
      GTEST_SKIP()
          << "ONLY ROOT CAN BECOME A SECOND USER: planted files were not tried";
    // mkdtemp made it for root alone.
    ::chmod(dir_.path().c_str(), 0755);
    ::chown(dir_.path().c_str(), kVictim.uid(), kVictim.uid());
  }

  [[nodiscard]] CacheOptions options() const {
    CacheOptions options;
    options.file_system = &files_;
    options.root = root_;
    options.persistent_dir.clear();
    options.lock_times = {.heartbeat = 50ms, .no_heartbeat = 500ms};
    options.limit_bytes = 64ULL << 10U;  // what one process publishes makes it look
    return options;
  }

  [[nodiscard]] fs::path object() const {
    return Layout(root_).object(ReferenceObject(0).key());
  }

  void fill() const {
    ASSERT_EQ(kVictim.run([&] {
      const auto cache = Cache::open(options());
      if (cache->mode() != Mode::kReadWrite)
        return cache->mode_reason();
      for (int i = 0; i < kObjects; ++i) {
        const auto published = cache->publish(*ReferenceObject(i));
        if (published.outcome == Published::kNotStored)
          return published.error->message;
      }
      for (int i = 0; i < kObjects; ++i) {
        const auto held = cache->lock({.key = ReferenceObject(i).key()});
        const auto slot = cache->acquire_slot({});
        if (cache->lock_folder().usable() &&
            (held.outcome != LockOutcome::kHeld || slot.outcome != SlotOutcome::kHeld))
          return std::string("no lock");
      }
      std::ignore = cache->trim({});
      // One is damaged, so that something goes to quarantine.
      const fs::path damaged = Layout(root_).object(ReferenceObject(kDamaged).key());
      fs::permissions(damaged, fs::perms::owner_write, fs::perm_options::add);
      std::ofstream(damaged) << "damaged";
      return std::string();
    }),
              "");
  }

  /// "" or which hit is wrong.
  static std::string wrong_hit(Cache& cache) {
    for (int i = 0; i < kObjects; ++i) {
      const auto found = cache.find(ReferenceObject(i).key());
      if (found && as_text(found->payload()) != test::reference_payload(i))
        return "object " + std::to_string(i) + " has other bytes";
    }
    return "";
  }

  /// All that a cache is asked for; "" if it went as it must.
  [[nodiscard]] std::string use(Plant plant, const Counted& counted) const {
    const auto cache = Cache::open(options());
    std::string wrong = wrong_hit(*cache);
    for (int i = 0; i < kObjects; ++i) {
      const auto held = cache->lock({.key = ReferenceObject(i).key()});
      const auto slot = cache->acquire_slot({});
      std::ignore = cache->publish(*ReferenceObject(i));
    }
    wrong += wrong_hit(*cache);
    std::ignore = cache->list({});
    std::ignore = cache->stats();
    std::ignore = cache->walk({}, Damaged::kInclude);
    std::ignore = cache->verify({.quarantine = Quarantine::kYes});
    std::ignore = cache->trim({.limit_bytes = 1, .minimum_age = 0s});
    for (int i = 0; i < kObjects; ++i) {
      std::ignore = cache->remove(ReferenceObject(i).key());
      std::ignore = cache->publish(*ReferenceObject(i));
    }
    wrong += wrong_hit(*cache);
    cache->flush(20s);
    if (!counted(*cache, plant))
      wrong += "it is not counted";
    return wrong;
  }

  /// Each plant, in a fresh root each time, at the place that `place` names.
  void attack(const std::function<fs::path()>& place, const Counted& counted) {
    for (const Plant plant : kPlants) {
      SCOPED_TRACE(test::to_string(plant));
      fs::remove_all(root_);
      fs::remove_all(dir_.path() / "outside");
      outside_.emplace(dir_.path() / "outside");
      fill();
      const fs::path path = place();
      if (!put(plant, path, *outside_)) {
        std::printf("not tried here: %s\n", test::to_string(plant));
        continue;
      }
      campaign_.injected();
      if (const auto wrong = kVictim.run([&] { return use(plant, counted); });
          !wrong.empty())
        campaign_.wrong(path.native() + ": " + wrong);
      if (const auto change = outside_->change(); !change.empty())
        campaign_.wrong(path.native() + ": " + change);
      fs::remove_all(path);
      expect_whole();
    }
  }

  /// Once the plant is gone everything is as always.
  void expect_whole() {
    const auto wrong = kVictim.run([&] {
      const auto cache = Cache::open(options());
      for (int i = 0; i < kObjects; ++i) {
        std::ignore = cache->publish(*ReferenceObject(i));
        if (!cache->find(ReferenceObject(i).key()))
          return "object " + std::to_string(i) + " cannot be had";
      }
      const auto verified = cache->verify({});
      const bool clean = verified && verified->problems.empty();
      return clean ? wrong_hit(*cache) : std::string("verify finds something");
    });
    if (!wrong.empty())
      campaign_.wrong("afterwards: " + wrong);
  }

  mutable test::FaultyFileSystem files_;
  const test::TempDir dir_;
  const fs::path root_ = dir_.path() / "root";
  std::optional<Outside> outside_;
};

TEST_F(PlantedFilesTest, fault_33_InPlaceOfAnObjectItIsRefusedAndCounted) {
  attack([&] { return object(); },
         [](Cache& cache, Plant plant) {
           // Of a file of the victim's own only the bytes tell.
           return cache.counters().get(plant == Plant::kHardLink
                                           ? Counter::kQuarantined
                                           : Counter::kUntrusted) > 0;
         });
}

TEST_F(PlantedFilesTest, fault_33_InPlaceOfAFolderOfObjectsItIsRefusedAndCounted) {
  attack([&] { return object().parent_path(); },
         [](Cache& cache, Plant /*plant*/) {
           return cache.counters().get(Counter::kUntrusted) > 0 ||
                  cache.counters().snapshot().contains("publish_refused.ENOTDIR");
         });
}

TEST_F(PlantedFilesTest, fault_33_InPlaceOfAllObjectsItIsRefusedAndCounted) {
  attack([&] { return fs::path(Layout(root_).objects()); }, folder_refused);
  attack([&] { return root_ / "objects"; }, folder_refused);
}

TEST_F(PlantedFilesTest, fault_33_InPlaceOfALockItIsRefusedAndCounted) {
  const auto bypassed = [](Cache& cache, Plant plant) {
    return cache.counters().get(Counter::kLockBypassed) > 0 && refused(cache, plant);
  };
  attack([&] { return root_ / "locks"; },
         [](Cache& cache, Plant plant) {
           return cache.counters().get(Counter::kLockBypassed) > 0 &&
                  folder_refused(cache, plant);
         });
  attack([&] { return root_ / "locks" / "slots"; }, bypassed);
  attack([&] { return root_ / "locks" / object().parent_path().filename(); }, bypassed);
  attack(
      [&] {
        fs::remove(root_ / "index.sqlite");  // so that it is built
        return root_ / "locks" / "index";
      },
      refused);
  attack([&] { return root_ / "locks" / "trim"; }, refused);
}

TEST_F(PlantedFilesTest,
       fault_33_InPlaceOfTheIndexItIsReplacedOrDoneWithoutAndCounted) {
  attack([&] { return root_ / "index.sqlite"; },
         [](Cache& cache, Plant plant) {
           return (cache.counters().get(Counter::kIndexRebuilt) > 0 ||
                   cache.counters().get(Counter::kIndexFailed) > 0) &&
                  refused(cache, plant);
         });
  for (const char* beside : {"-journal", "-wal", "-shm"}) {
    attack([&] { return root_ / (std::string("index.sqlite") + beside); }, refused);
  }
}

/// It cannot be counted there; but whoever is refused says so himself.
TEST_F(PlantedFilesTest, fault_33_InPlaceOfTheCountersItIsLeftAloneAndTold) {
  attack([&] { return root_ / "counters"; }, refused);
}

TEST_F(PlantedFilesTest, fault_33_InPlaceOfWhatOnlyCareUsesItIsLeftAloneAndCounted) {
  attack([&] { return root_ / "quarantine"; }, refused);
  // Where there is no index, the stamp says when to look whether to trim. A fresh one
  // is refused as well: whoever planted it could hold off every look.
  files_.on_type = [&](std::string_view path) {
    return path.starts_with(root_.native()) ? std::int64_t{0x6969} : 0;
  };
  attack([&] { return root_ / "trim.stamp"; }, refused);
}

}  // namespace
}  // namespace kiln::cache
