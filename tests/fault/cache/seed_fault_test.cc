// Rows 43 to 45: seeds that are damaged, that change while they are read, and that
// cannot be read. The cache beside them gives right bytes or a miss, and uses the rest.

#include <atomic>
#include <cerrno>
#include <fstream>
#include <random>
#include <thread>

#include "cache/cache.h"
#include "tests/support/child_process.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/sample_pack.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/log.h"

namespace kiln::cache {
namespace {

using test::ChildProcess;
using test::ReferenceObject;

constexpr int kObjects = 6;

class SeedFaultTest : public test::CampaignTest {
 protected:
  SeedFaultTest() {
    log_to([](LogLevel, const std::string&) {});  // a warning for each fault
    std::vector<StoredObject> objects;
    CacheOptions options = without_root({});
    options.root = folder_;
    const auto root = Cache::open(options);
    for (int number = 0; number < kObjects; ++number) {
      ReferenceObject object(number);
      objects.push_back(StoredObject::make(*object).value());
      std::ignore = root->publish(objects.back());
    }
    pack_ = test::pack_of(objects);
    test::write_bytes(path_, pack_);
  }

  ~SeedFaultTest() override { log_to({}); }

  /// Every object comes from the seed each time.
  [[nodiscard]] CacheOptions without_root(std::vector<fs::path> seeds) const {
    CacheOptions options;
    options.persistent_dir = dir_.path() / "persistent";
    options.seeds = std::move(seeds);
    return options;
  }

  /// A cache beside the seed finds all of it.
  void expect_whole() const {
    const auto cache = Cache::open(without_root({path_}));
    for (int number = 0; number < kObjects; ++number)
      EXPECT_TRUE(cache->find(ReferenceObject(number).key())) << number;
  }

  const test::TempDir dir_;
  const fs::path path_ = dir_.path() / "job.kpack";
  const fs::path folder_ = dir_.path() / "root";
  Bytes pack_;
};

TEST_F(SeedFaultTest, fault_43_ADamagedPackGivesRightBytesOrAMiss) {
  std::mt19937 random(43);
  const auto number = [&](std::size_t below) { return random() % below; };
  const unsigned rounds = 400 * test::fault_length();
  for (unsigned round = 0; round < rounds; ++round) {
    Bytes damaged = pack_;
    std::string what = "a flipped bit";
    if (round % 4 == 0) {
      damaged.resize(number(damaged.size()));
      what = "cut to " + std::to_string(damaged.size());
    } else if (round % 4 == 1) {  // a block that was never written
      const std::size_t at = number(damaged.size());
      std::fill(damaged.begin() + static_cast<std::ptrdiff_t>(at),
                damaged.begin() +
                    static_cast<std::ptrdiff_t>(std::min(at + 512, damaged.size())),
                std::byte{0});
      what = "zeros from " + std::to_string(at);
    } else {
      damaged[number(damaged.size())] ^= std::byte(1U << number(8));
    }
    test::write_bytes(path_, damaged);
    campaign_.injected();
    campaign_.check_hits(*Cache::open(without_root({path_})), kObjects, what);
  }
  test::write_bytes(path_, pack_);
  expect_whole();
}

/// What the reader and the one who damages see.
struct Shared {
  std::atomic<bool> over;
  std::atomic<int> hits;
  std::atomic<int> misses;
};

TEST_F(SeedFaultTest, fault_44_APackThatIsCutOverwrittenAndReplacedWhileItIsRead) {
  const test::SharedWithChildren<Shared> shared;
  std::vector<ChildProcess> readers;
  for (unsigned seed = 0; seed < 4; ++seed) {
    readers.emplace_back([&, seed] {
      std::mt19937 random(seed);
      while (!shared->over) {
        const auto cache = Cache::open(without_root({path_}));
        for (int i = 0; i < 20; ++i) {
          const int number = static_cast<int>(random() % kObjects);
          const auto found = cache->find(ReferenceObject(number).key());
          ++(found ? shared->hits : shared->misses);
          if (found && as_text(found->payload()) != test::reference_payload(number))
            return 1;
        }
      }
      return 0;
    });
  }
  std::mt19937 random(44);
  const auto replace = [&] {
    test::write_bytes(dir_.path() / "new", pack_);
    fs::rename(dir_.path() / "new", path_);
  };
  const unsigned rounds = 300 * test::fault_length();
  for (unsigned round = 0; round < rounds; ++round) {
    campaign_.injected();
    switch (random() % 4) {
      case 0:
        fs::resize_file(path_, random() % pack_.size());
        break;
      case 1: {
        std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(random() % pack_.size()));
        file << "bytes of somebody else";
        break;
      }
      case 2:
        fs::remove(path_);
        break;
      default:
        break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    replace();
  }
  shared->over = true;
  for (ChildProcess& reader : readers) campaign_.expect_end(reader);
  EXPECT_GT(shared->hits, 0);
  expect_whole();
}

TEST_F(SeedFaultTest, fault_45_EachCallOnASeedFails) {
  for (const fs::path& seed : {path_, folder_}) {
    for (const int error : {EIO, ESTALE, EACCES, ENOMEM, EMFILE}) {
      int calls = 1;
      for (int failing = 0; failing < calls; ++failing) {
        test::FaultyFileSystem files;
        files.before = [&](std::string_view, int number) {
          return number == failing ? -error : 0;
        };
        CacheOptions options = without_root({seed});
        options.file_system = &files;
        campaign_.check_hits(*Cache::open(options), kObjects,
                             "when a call fails with " + std::to_string(error));
        calls = static_cast<int>(files.calls().size());
        campaign_.injected(failing < calls ? 1 : 0);
      }
    }
  }
  expect_whole();
}

}  // namespace
}  // namespace kiln::cache
