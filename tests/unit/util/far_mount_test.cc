#include "util/far_mount.h"

#include <sstream>

#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

class FarMountTest : public testing::Test {
 protected:
  FarMountTest() { fs::create_directories(base_ / "far"); }

  /// The mount that a path is on where base/far is an NFS mount, and more is said.
  [[nodiscard]] std::string on(const fs::path& path, const std::string& more = "") {
    std::istringstream lines(
        "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
        "30 22 0:5 / /proc rw - proc proc rw\n"
        "40 22 0:40 / " +
        (base_ / "far").native() + " rw shared:9 master:2 - nfs4 server:/x rw\n" +
        more);
    const auto found = far_mount_of(path, lines);
    return found ? to_string(*found) : "local";
  }
  static std::string line(const fs::path& place, const std::string& type) {
    return "50 22 0:50 / " + place.native() + " rw - " + type + " x rw\n";
  }

  const test::TempDir dir_;
  const fs::path base_ = fs::canonical(dir_.path());
  const std::string nfs_ = "nfs4 at " + (base_ / "far").native();
};

TEST_F(FarMountTest, WhatIsBelowAFarMountIsFarWhetherItExistsOrNot) {
  EXPECT_EQ(on(base_ / "far"), nfs_);
  EXPECT_EQ(on(base_ / "far" / "cache" / "objects"), nfs_);
  EXPECT_EQ(on(base_ / "far/"), nfs_);
}

TEST_F(FarMountTest, WhatIsBesideItIsLocal) {
  EXPECT_EQ(on(base_), "local");
  EXPECT_EQ(on(base_ / "farther"), "local") << "a prefix of the name alone";
  EXPECT_EQ(on(base_ / "far" / ".." / "cache"), nfs_) << "the kernel enters it";
  EXPECT_EQ(on(base_ / "cache" / ".." / "cache"), "local");
}

TEST_F(FarMountTest, ALinkIntoItIsFollowed) {
  fs::create_symlink(base_ / "far" / "home", base_ / "absolute");
  fs::create_symlink("far", base_ / "relative");
  fs::create_symlink("relative", base_ / "twice");
  fs::create_symlink("loop", base_ / "loop");
  EXPECT_EQ(on(base_ / "absolute" / "cache"), nfs_);
  EXPECT_EQ(on(base_ / "twice" / "cache"), nfs_);
  EXPECT_EQ(on(base_ / "loop" / "cache"), "local");
}

TEST_F(FarMountTest, TheDeepestMountCountsAndOfTwoAtOnePlaceTheLater) {
  EXPECT_EQ(on(base_ / "far" / "scratch", line(base_ / "far" / "scratch", "xfs")), nfs_)
      << "the way there leads through it";
  EXPECT_EQ(on(base_ / "far", line(base_ / "far", "tmpfs")), "local");
  EXPECT_EQ(on(base_ / "ssh" / "x", line(base_ / "ssh", "fuse.sshfs")),
            "fuse.sshfs at " + (base_ / "ssh").native());
}

TEST_F(FarMountTest, TypesThatNobodyListedAreFarAndEscapedNamesAreRead) {
  EXPECT_EQ(on(base_ / "a b" / "c", line(base_ / "a\\040b", "newfs")),
            "newfs at " + (base_ / "a b").native());
}

TEST_F(FarMountTest, ATableThatIsEmptyOrCutSaysNothing) {
  for (const char* const text : {"", "\n", "22 1 254:1", "22 1 254:1 / / rw - "}) {
    std::istringstream lines(text);
    EXPECT_FALSE(far_mount_of("/a", lines)) << text;
  }
}

}  // namespace
}  // namespace kiln
