// A store that holds its folder of objects open, as every store does on the real file
// system: the shorter way must not see less, trust more, or outlive its folder.

#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <tuple>

#include "tests/support/sample_object.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

using test::SampleObject;
using test::SampleStore;

class HeldFolderTest : public testing::Test {
 protected:
  HeldFolderTest() {
    fs::create_directories(Layout(root()).objects());
    holding_.emplace(root());
    EXPECT_EQ(holding_->store.publish(*sample_).outcome, Published::kStored);
  }

  [[nodiscard]] fs::path root() const { return dir_.path() / "root"; }
  [[nodiscard]] fs::path path() const { return holding_->layout.object(sample_.key()); }
  [[nodiscard]] bool finds(const SampleObject& sample) const {
    const auto found = holding_->store.find(sample.key());
    return found && *found;
  }
  [[nodiscard]] bool is_untrusted() const {
    const auto found = holding_->store.find(sample_.key());
    return !found && found.error().code == ErrorCode::kUntrusted;
  }

  test::TempDir dir_;
  SampleObject sample_{1};
  std::optional<SampleStore> holding_;
};

TEST_F(HeldFolderTest, FindsWhatWasPublishedBeforeAndAfter) {
  EXPECT_TRUE(finds(sample_));
  SampleObject second(2);
  EXPECT_FALSE(finds(second));
  SampleStore other(root());
  ASSERT_EQ(other.store.publish(*second).outcome, Published::kStored);
  EXPECT_TRUE(finds(second));
}

TEST_F(HeldFolderTest, AFolderThatOthersCanWriteIsUntrusted) {
  fs::permissions(path().parent_path(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_TRUE(is_untrusted());
}

TEST_F(HeldFolderTest, AFileThatOthersCanWriteIsUntrusted) {
  fs::permissions(path(), fs::perms::group_write, fs::perm_options::add);
  EXPECT_TRUE(is_untrusted());
}

TEST_F(HeldFolderTest, ASymbolicLinkInPlaceOfAnObjectIsUntrusted) {
  const fs::path elsewhere = dir_.path() / "elsewhere";
  fs::rename(path(), elsewhere);
  fs::create_symlink(elsewhere, path());
  EXPECT_TRUE(is_untrusted());
}

TEST_F(HeldFolderTest, ACorruptObjectIsCountedAndQuarantinedOnce) {
  fs::permissions(path(), fs::perms::owner_all);
  fs::resize_file(path(), fs::file_size(path()) - 1);
  fs::permissions(path(), fs::perms::owner_read);
  EXPECT_FALSE(finds(sample_));
  EXPECT_FALSE(fs::exists(path()));
  EXPECT_EQ(holding_->counters.get(Counter::kQuarantined), 1U);
}

TEST_F(HeldFolderTest, ACacheThatWasRemovedAndMadeAnewIsFound) {
  fs::remove_all(root());
  EXPECT_FALSE(finds(sample_));
  SampleStore anew(root());
  ASSERT_EQ(anew.store.publish(*sample_).outcome, Published::kStored);
  EXPECT_TRUE(finds(sample_));
  EXPECT_EQ(holding_->store.publish(*sample_).outcome, Published::kAlreadyThere);
}

TEST_F(HeldFolderTest, AHostThatClosesDescriptorsItDoesNotKnowLosesNothing) {
  // Whatever is opened next gets the number, as in a program that became a daemon.
  for (int fd = 3; fd < 64; ++fd) ::close(fd);
  EXPECT_TRUE(finds(sample_));
  for (int i = 0; i < 32; ++i) std::ignore = ::open("/", O_RDONLY | O_CLOEXEC);
  EXPECT_TRUE(finds(sample_));
}

}  // namespace
}  // namespace kiln::cache
