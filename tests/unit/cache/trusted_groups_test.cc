// Whose groups may write a folder on the way to the cache.

#include "cache/trusted_groups.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cache/trust.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"

namespace kiln::cache {
namespace {

constexpr uid_t kMe = 1000;
constexpr std::int64_t kOverlayfs = 0x794C7630;
constexpr std::int64_t kExt4 = 0xEF53;

class TrustedGroupsTest : public testing::Test {
 protected:
  TrustedGroupsTest() {
    users("root:x:0:0:root:/root:/bin/bash\nme:x:1000:1000:,,,:/home/me:/bin/sh\n");
    groups("root:x:0:\nme:x:1000:\nusers:x:100:\n");
    files_.on_type = [this](std::string_view) { return type_; };
  }
  void users(const std::string& text) { std::ofstream(passwd_) << text; }
  void groups(const std::string& text) { std::ofstream(groups_) << text; }

  /// Whether the user, with `own` as its group, trusts a folder of `group`.
  [[nodiscard]] bool accepts(gid_t group, gid_t own = 1000, uid_t user = kMe,
                             std::vector<gid_t> named = {}) {
    struct stat info {};
    EXPECT_EQ(files_.stat(dir_.path().c_str(), info), 0);
    info.st_gid = group;
    return TrustedGroups(std::move(named),
                         {user, own, passwd_, groups_, dir_.path(), &files_})
        .accepts(info);
  }

  const test::TempDir dir_;
  const std::filesystem::path passwd_ = dir_.path() / "passwd";
  const std::filesystem::path groups_ = dir_.path() / "group";
  std::int64_t type_ = kExt4;
  test::FaultyFileSystem files_;
};

TEST_F(TrustedGroupsTest, TheUsersPrivateGroupIs) {
  EXPECT_TRUE(accepts(1000));
  EXPECT_FALSE(accepts(100));
  EXPECT_FALSE(accepts(0));
  groups("me:x:1000:me\n");
  EXPECT_TRUE(accepts(1000)) << "the user itself is no other member";
}

TEST_F(TrustedGroupsTest, AGroupIsNotPrivateThatHasAnotherNameOrMember) {
  for (const char* const text :
       {"staff:x:1000:\n", "me:x:1000:you\n", "me:x:1000:me,you\n",
        "me:x:1000:\nalso:x:1000:you\n", "me:x:10001:\n", "me:x:1000\n", ""}) {
    groups(text);
    EXPECT_FALSE(accepts(1000)) << text;
  }
}

TEST_F(TrustedGroupsTest, AGroupIsNotPrivateThatIsPrimaryOfAnotherUserOrNotOfThisOne) {
  for (const char* const text :
       {"me:x:1000:1000::/:\nyou:x:1001:1000::/:\n", "me:x:1000:100::/:\n",
        "you:x:1001:1000::/:\n", "me:x:1000\n", ""}) {
    users(text);
    EXPECT_FALSE(accepts(1000)) << text;
  }
  std::filesystem::remove(passwd_);
  EXPECT_FALSE(accepts(1000));
}

TEST_F(TrustedGroupsTest, OneOfKilnTrustedGidsIs) {
  EXPECT_TRUE(accepts(2000, 1000, kMe, {7, 2000}));
  EXPECT_FALSE(accepts(2001, 1000, kMe, {7, 2000}));
}

TEST_F(TrustedGroupsTest, GroupZeroIsOnTheOverlayOfAContainerOfAnArbitraryUser) {
  type_ = kOverlayfs;
  EXPECT_TRUE(accepts(0, 0, 12345));
  EXPECT_FALSE(accepts(0, 1000, 12345)) << "not in that group";
  EXPECT_FALSE(accepts(0, 0, kMe)) << "a user that /etc/passwd knows";
  EXPECT_FALSE(accepts(100, 0, 12345)) << "another group";
  type_ = kExt4;
  EXPECT_FALSE(accepts(0, 0, 12345)) << "no container";
  type_ = kOverlayfs;
  struct stat volume {};
  ASSERT_EQ(files_.stat(dir_.path().c_str(), volume), 0);
  volume.st_gid = 0;
  ++volume.st_dev;
  EXPECT_FALSE(TrustedGroups({}, {12345, 0, passwd_, groups_, dir_.path(), &files_})
                   .accepts(volume))
      << "a volume that others may mount, too";
}

TEST_F(TrustedGroupsTest, FoldersMayBeOfAGroupAndFilesMayNot) {
  const TrustPolicy policy(kMe, {}, std::nullopt,
                           {{2000}, {kMe, 1000, passwd_, groups_, "/", &files_}});
  struct stat info {};
  info.st_uid = kMe;
  info.st_gid = 2000;
  info.st_mode = S_IFDIR | 0770;
  EXPECT_TRUE(policy.accepts(info));
  info.st_mode = S_IFDIR | 0772;
  EXPECT_FALSE(policy.accepts(info));
  info.st_mode = S_IFREG | 0660;
  EXPECT_FALSE(policy.accepts(info));
}

}  // namespace
}  // namespace kiln::cache
