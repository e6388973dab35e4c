#include "cache/trust.h"

#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

constexpr uid_t kUser = 1000;
constexpr uid_t kStranger = 4711;
constexpr uid_t kOverflow = 65534;

struct Node {
  uid_t uid;
  mode_t mode;
};

/// /t/home/user/cache with owners and modes as told; everything else is root's, 0755.
class TrustTest : public testing::Test {
 protected:
  TrustTest() {
    fs::create_directories(cache_);
    files_.on_stat = [this](std::string_view path, struct stat& info) {
      info.st_uid = 0;
      if (S_ISLNK(info.st_mode))
        return;
      info.st_mode = (info.st_mode & ~07777U) | 0755U;
      const auto node = nodes_.find(std::string(path));
      if (node != nodes_.end()) {
        info.st_uid = node->second.uid;
        info.st_mode = (info.st_mode & ~07777U) | node->second.mode;
      }
    };
  }
  void set(const fs::path& path, Node node) { nodes_[path.native()] = node; }
  Result<void> check() { return policy_.check_path(files_, cache_); }

  const test::TempDir dir_;
  const fs::path home_ = dir_.path() / "home";
  const fs::path user_ = home_ / "user";
  const fs::path cache_ = user_ / "cache";
  test::FaultyFileSystem files_;
  std::map<std::string, Node> nodes_;
  TrustPolicy policy_{kUser, {}, std::nullopt};
};

TEST_F(TrustTest, FoldersOfTheUserAndOfRootAreTrusted) {
  set(user_, {kUser, 0755});
  set(cache_, {kUser, 0700});
  EXPECT_TRUE(check());
}

TEST_F(TrustTest, TheOffendingComponentIsNamed) {
  set(user_, {kStranger, 0755});
  const auto checked = check();
  EXPECT_EQ(checked.error().code, ErrorCode::kUntrusted);
  EXPECT_NE(checked.error().message.find(user_.native() + " "), std::string::npos);
}

TEST_F(TrustTest, GroupOrWorldWritableIsNotTrusted) {
  set(cache_, {kUser, 0770});
  EXPECT_FALSE(check());
  set(cache_, {kUser, 0702});
  EXPECT_FALSE(check());
  set(cache_, {kUser, 0700});
  set(home_, {0, 0777});
  EXPECT_FALSE(check());
}

TEST_F(TrustTest, AStickyFolderOfRootIsTrustedIfTheNextComponentIs) {
  set(home_, {0, 01777});
  set(user_, {kUser, 0700});
  EXPECT_TRUE(check());
  set(user_, {kStranger, 0700});
  EXPECT_FALSE(check());
}

TEST_F(TrustTest, AStickyFolderOfAStrangerOrAsTheLastOneIsNotTrusted) {
  set(home_, {kStranger, 01777});
  EXPECT_FALSE(check());
  set(home_, {0, 0755});
  set(cache_, {0, 01777});
  EXPECT_FALSE(check());
}

TEST_F(TrustTest, TrustedUidsOwnPathsAndObjects) {
  set(cache_, {kStranger, 0755});
  EXPECT_FALSE(check());
  EXPECT_TRUE(TrustPolicy(kUser, {kStranger}, std::nullopt).check_path(files_, cache_));
}

TEST_F(TrustTest, InAUserNamespaceTheOverflowUidOfAnAncestorCountsAsRoot) {
  const TrustPolicy inside(kUser, {}, kOverflow);
  set(home_, {kOverflow, 01777});
  set(user_, {kUser, 0700});
  EXPECT_TRUE(inside.check_path(files_, cache_));
  EXPECT_FALSE(check()) << "outside of one it is a stranger";
  set(cache_, {kOverflow, 0755});
  EXPECT_FALSE(inside.check_path(files_, cache_)) << "the root itself is no ancestor";
}

TEST_F(TrustTest, WhatASymbolicLinkPointsToIsCheckedAsWell) {
  const fs::path real = home_ / "real";
  fs::create_directory(real);
  fs::create_symlink(real, user_ / "link");
  const fs::path through = user_ / "link" / "cache";
  EXPECT_TRUE(policy_.check_path(files_, through));
  set(real, {kStranger, 0755});
  EXPECT_FALSE(policy_.check_path(files_, through));
}

TEST_F(TrustTest, ALoopOfLinksEnds) {
  fs::create_symlink("b", user_ / "a");
  fs::create_symlink("a", user_ / "b");
  EXPECT_EQ(policy_.check_path(files_, user_ / "a" / "cache").error().code,
            ErrorCode::kIo);
}

TEST_F(TrustTest, APathThatIsNotThereYetIsCheckedAsFarAsItIs) {
  EXPECT_TRUE(policy_.check_path(files_, cache_ / "not" / "yet"));
  set(cache_, {kUser, 0777});
  EXPECT_FALSE(policy_.check_path(files_, cache_ / "not" / "yet"));
}

}  // namespace
}  // namespace kiln::cache
