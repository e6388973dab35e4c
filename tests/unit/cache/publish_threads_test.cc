// Publishing from many threads, as unpack and pull do it.

#include <atomic>

#include "tests/support/faulty_file_system.h"
#include "tests/support/in_threads.h"
#include "tests/support/sample_object.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

using test::SampleObject;

constexpr int kThreads = 16;
constexpr int kEach = 8;  // objects of a thread; its neighbour has half of them, too

class PublishThreadsTest : public testing::Test {
 protected:
  static int number(int thread, int object) { return thread * kEach / 2 + object; }

  /// Each thread publishes its objects. What is said to be stored is there and whole,
  /// and nothing else has a name.
  void publish_all() {
    test::in_threads(kThreads, [&](int thread) {
      for (int i = 0; i < kEach; ++i) {
        const auto outcome =
            store_.store.publish(*SampleObject(number(thread, i))).outcome;
        stored_ += outcome == Published::kStored;
        refused_ += outcome == Published::kNotStored;
      }
    });
    std::size_t names = 0;
    for (unsigned folder = 0; folder < kFolderCount; ++folder) {
      const auto keys = store_.store.list_keys(folder).value();
      for (const Digest& key : keys) {
        ++names;
        EXPECT_EQ(store_.store.verify(key), std::nullopt);
      }
    }
    EXPECT_EQ(names, static_cast<std::size_t>(stored_));
    for (const fs::path& file : dir_.files())
      EXPECT_FALSE(Layout::is_temporary(file.filename().native())) << file;
  }

  static constexpr int kObjects = kThreads * kEach / 2 + kEach / 2;
  const test::TempDir dir_;
  test::FaultyFileSystem faulty_;
  test::SampleStore store_{dir_.path() / "root", faulty_};
  std::atomic<int> stored_ = 0;
  std::atomic<int> refused_ = 0;
};

TEST_F(PublishThreadsTest, EachObjectIsStoredByOneOfTheThreadsThatHaveIt) {
  publish_all();
  EXPECT_EQ(stored_, kObjects);
  EXPECT_EQ(refused_, 0);
}

TEST_F(PublishThreadsTest, TheSameWithoutHardLinks) {
  faulty_.fail("link", EPERM);
  publish_all();
  EXPECT_EQ(stored_, kObjects);
  EXPECT_EQ(refused_, 0);
}

TEST_F(PublishThreadsTest, ASyncThatFailsCostsItsOwnObjectAlone) {
  std::atomic<int> syncs = 0;
  faulty_.before = [&](std::string_view call, int) {
    return call == "fdatasync" && syncs++ % 3 == 0 ? -EIO : 0;
  };
  publish_all();
  EXPECT_EQ(refused_, (syncs + 2) / 3);
  EXPECT_GT(refused_, 0);
}

TEST_F(PublishThreadsTest, WhatIsThereAlreadyIsNotWrittenAgain) {
  publish_all();
  faulty_.forget_calls();
  EXPECT_EQ(store_.store.publish(*SampleObject(0)).outcome, Published::kAlreadyThere);
  EXPECT_THAT(faulty_.calls(), Not(Contains("write")));
  EXPECT_THAT(faulty_.calls(), Not(Contains("fdatasync")));
}

}  // namespace
}  // namespace kiln::cache
