#include "cache/trim.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <fstream>
#include <vector>

#include "tests/support/faulty_file_system.h"
#include "tests/support/sample_object.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

using test::SampleObject;

class TrimTest : public testing::Test {
 protected:
  TrimTest() : sample_(dir_.path() / "root", files_) {
    for (int i = 0; i < 10; ++i) {
      SampleObject object(i);
      EXPECT_EQ(sample_.store.publish(*object).outcome, Published::kStored);
      keys_.push_back(object.key());
      age(i, std::chrono::hours(100 - i));  // 0 is the oldest
      size_ = fs::file_size(path(i));
    }
  }
  fs::path path(int i) { return sample_.layout.object(keys_[static_cast<size_t>(i)]); }
  static void set_age(const fs::path& file, std::chrono::seconds age) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - age);
  }
  void age(int i, std::chrono::seconds age) { set_age(path(i), age); }
  /// Object `i` of another version of the format.
  fs::path other(std::uint32_t format, int i) {
    return sample_.layout.root() / "objects" / ("v" + std::to_string(format)) /
           path(i).lexically_relative(sample_.layout.objects());
  }
  void add_other(std::uint32_t format, int i, std::chrono::seconds age) {
    fs::create_directories(other(format, i).parent_path());
    std::ofstream(other(format, i)) << "x";
    set_age(other(format, i), age);
  }
  TrimResult trim(TrimOptions options) {
    return cache::trim(sample_.layout, files_, sample_.store, sample_.counters, options)
        .value();
  }
  std::vector<int> left() {
    std::vector<int> found;
    for (int i = 0; i < 10; ++i) {
      if (fs::exists(path(i)))
        found.push_back(i);
    }
    return found;
  }

  const test::TempDir dir_;
  test::FaultyFileSystem files_;
  test::SampleStore sample_;
  std::vector<Digest> keys_;
  std::uint64_t size_ = 0;
};

TEST_F(TrimTest, UnderTheLimitNothingIsRemoved) {
  EXPECT_EQ(trim({.limit_bytes = 10 * size_ + 100}).removed, 0U);
}

TEST_F(TrimTest, OverTheLimitTheLeastRecentlyUsedGoUntilTheRestFits) {
  const TrimResult result =
      trim({.limit_bytes = 5 * size_ + 500, .target_percent = 90});
  EXPECT_LE(result.bytes_left, (5 * size_ + 500) * 9 / 10);
  EXPECT_EQ(result.removed + left().size(), 10U);
  EXPECT_THAT(left(), testing::Contains(9));
  EXPECT_EQ(left().front(), static_cast<int>(result.removed));
  EXPECT_EQ(result.removed_keys.front(), keys_[0]);
}

TEST_F(TrimTest, ALimitThatIsTheTargetIsMetToTheByte) {
  for (const std::uint64_t room : {7 * size_, 5 * size_ + 99, 4 * size_ + size_ / 2}) {
    const TrimResult result = trim({.limit_bytes = room, .target_percent = 100});
    EXPECT_EQ(result.bytes_left, room / size_ * size_) << room;
  }
}

TEST_F(TrimTest, FilesOfOtherProgramsDriveOutNoKernels) {
  std::vector<Digest> files;
  for (int i = 10; i < 20; ++i) {
    SampleObject object(i);
    object->kind = Kind::kFiles;
    EXPECT_EQ(sample_.store.publish(*object).outcome, Published::kStored);
    files.push_back(object.key());
    set_age(sample_.layout.object(files.back()), std::chrono::hours(30 - i));
  }
  const auto files_left = [&] {
    return std::ranges::count_if(files, [&](const Digest& key) {
      return fs::exists(sample_.layout.object(key));
    });
  };
  // All files are younger than all kernels. Half of the limit is theirs.
  TrimOptions options{.limit_bytes = 18 * size_ + 100, .target_percent = 100};
  options.dry_run = DryRun::kYes;
  EXPECT_EQ(trim(options).removed, 2U);
  options.dry_run = DryRun::kNo;
  const TrimResult result = trim(options);
  EXPECT_EQ(result.removed, 2U);
  EXPECT_EQ(result.removed_keys.front(), files.front());
  EXPECT_EQ(files_left(), 9);  // and then the oldest of all, a kernel
  EXPECT_EQ(left().size(), 9U);
  // Too young to go, they drive out no kernels either.
  for (const Digest& key : files) {
    if (fs::exists(sample_.layout.object(key)))
      set_age(sample_.layout.object(key), 1s);
  }
  TrimOptions less{.limit_bytes = 16 * size_ + 100, .target_percent = 100};
  EXPECT_EQ(trim(less).removed, 1U);  // of 9 kernels, for whom there is place for 8
  EXPECT_EQ(left().size(), 8U);
  for (const Digest& key : files) {
    if (fs::exists(sample_.layout.object(key)))
      set_age(sample_.layout.object(key), 1h);
  }
  options.limit_bytes = 4 * size_ + 100;
  EXPECT_EQ(trim(options).entries_left, 4U);
  EXPECT_EQ(files_left(), 2);
  EXPECT_EQ(left().size(), 2U);
}

TEST_F(TrimTest, ADryRunRemovesNothing) {
  EXPECT_EQ(trim({.limit_bytes = 0, .dry_run = DryRun::kYes}).removed, 10U);
  EXPECT_EQ(left().size(), 10U);
}

TEST_F(TrimTest, YoungObjectsStayWhateverTheLimit) {
  age(3, 5s);
  age(4, -24h);  // a stamp of tomorrow is not old
  // Nor one of the year 2426, which nanoseconds in 64 bits do not reach.
  constexpr std::array<timespec, 2> kDistant{
      {{14'400'000'000, 0}, {14'400'000'000, 0}}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path(5).c_str(), kDistant.data(), 0), 0);
  EXPECT_EQ(trim({.limit_bytes = 0}).removed, 7U);
  EXPECT_THAT(left(), testing::ElementsAre(3, 4, 5));
}

TEST_F(TrimTest, AnObjectUsedSinceTheWalkSurvives) {
  files_.before = [this](std::string_view call, int) {
    if (call == "unlink")
      age(5, 90s);
    return 0;
  };
  trim({.limit_bytes = 0});
  EXPECT_THAT(left(), testing::ElementsAre(5));
}

TEST_F(TrimTest, OldTemporariesAreSweptAndNothingElse) {
  const std::string folder = path(0).parent_path();
  const std::string old = Layout::temporary_in(folder);
  const std::string fresh = Layout::temporary_in(folder);
  const std::string in_root = Layout::temporary_in(sample_.layout.root().native());
  const std::string foreign = folder + "/notes.txt";
  for (const auto& name : {old, fresh, in_root, foreign}) std::ofstream(name) << "x";
  for (const auto& name : {old, in_root, foreign}) set_age(name, 2h);
  EXPECT_EQ(trim({}).orphans_swept, 2U);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_FALSE(fs::exists(in_root));
  EXPECT_TRUE(fs::exists(fresh));
  EXPECT_TRUE(fs::exists(foreign));
}

TEST_F(TrimTest, OtherVersionsOfTheFormatNeitherCountNorGo) {
  for (const unsigned version : {kFormatVersion - 1, kFormatVersion + 1}) {
    for (int i = 0; i < 10; ++i) add_other(version, i, 24h * 30);
    const fs::path temporary =
        Layout::temporary_in(other(version, 0).parent_path().native());
    std::ofstream(temporary) << "x";
    set_age(temporary, 24h);
  }
  EXPECT_EQ(trim({.limit_bytes = 10 * size_}).removed, 0U);
  const TrimResult all = trim({.limit_bytes = 0});
  EXPECT_EQ(all.removed, 10U);
  EXPECT_EQ(all.orphans_swept, 0U);
  for (const unsigned version : {kFormatVersion - 1, kFormatVersion + 1}) {
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(fs::exists(other(version, i)));
  }
}

TEST_F(TrimTest, QuarantineKeepsItsLatestFiles) {
  const fs::path folder = sample_.layout.quarantine();
  fs::create_directories(folder);
  for (int i = 0; i < 5; ++i)
    std::ofstream(folder / (keys_[0].hex() + "-" + std::to_string(i) + "-size")) << "x";
  std::ofstream(folder / "kept by hand") << "x";
  trim({.quarantine_count = 2});
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 3);
}

TEST_F(TrimTest, QuarantineTakesATenthOfTheLimitAtMost) {
  const fs::path folder = sample_.layout.quarantine();
  fs::create_directories(folder);
  for (int i = 0; i < 5; ++i)
    std::ofstream(folder / (keys_[0].hex() + "-" + std::to_string(i) + "-size"))
        << std::string(1000, 'x');
  trim({.limit_bytes = 35'000});
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 3);
}

TEST_F(TrimTest, QuarantineGoesAWeekAfterItWasSetAside) {
  const fs::path folder = sample_.layout.quarantine();
  fs::create_directories(folder);
  const std::string old = folder / (keys_[0].hex() + "-1-size");
  const std::string fresh = folder / (keys_[1].hex() + "-2-size");
  for (const auto& path : {old, fresh}) std::ofstream(path) << "x";
  set_age(fresh, 24h * 30);  // when it was written does not matter
  files_.on_stat = [&](std::string_view path, struct stat& info) {
    if (path == old)
      info.st_ctim.tv_sec -= std::chrono::seconds(24h * 8).count();
  };
  EXPECT_EQ(trim({}).orphans_swept, 1U);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh));
}

}  // namespace
}  // namespace kiln::cache
