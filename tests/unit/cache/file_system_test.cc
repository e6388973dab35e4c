#include "cache/file_system.h"

#include <gtest/gtest.h>
#include <linux/magic.h>

namespace kiln::cache {
namespace {

TEST(FileSystemType, HasANameAndIsLocalOrNot) {
  struct Row {
    std::int64_t type;
    const char* name;
    bool network;
  };
  for (const Row& row :
       {Row{EXT4_SUPER_MAGIC, "ext4", false}, Row{XFS_SUPER_MAGIC, "xfs", false},
        Row{BTRFS_SUPER_MAGIC, "btrfs", false}, Row{TMPFS_MAGIC, "tmpfs", false},
        Row{OVERLAYFS_SUPER_MAGIC, "overlayfs", false},
        Row{NFS_SUPER_MAGIC, "nfs", true}, Row{CIFS_SUPER_MAGIC, "cifs", true},
        Row{FUSE_SUPER_MAGIC, "fuse", true}, Row{CEPH_SUPER_MAGIC, "ceph", true},
        Row{V9FS_MAGIC, "9p", true}, Row{0x0BD00BD0, "lustre", true}}) {
    EXPECT_EQ(file_system_name(row.type), row.name);
    EXPECT_EQ(is_network_type(row.type), row.network) << row.name;
  }
}

TEST(FileSystemType, ThatNobodyKnowsIsToldByItsNumberAndCountsAsNetwork) {
  EXPECT_EQ(file_system_name(0x1234ABCD), "unknown, type 0x1234abcd");
  EXPECT_TRUE(is_network_type(0x1234ABCD));
  EXPECT_TRUE(is_network_type(0x20030528)) << "orangefs";
}

}  // namespace
}  // namespace kiln::cache
