// Disks without room: a tmpfs of half a megabyte or of few inodes, in a user namespace.

#include <gtest/gtest.h>

#include <string>

#include "cache/cache.h"
#include "tests/support/child_process.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/namespaces.h"
#include "tests/support/sample_object.h"
#include "tests/support/temp_dir.h"

namespace kiln::cache {
namespace {

using test::ChildProcess;
using test::SampleObject;

constexpr int kNoNamespace = 77;

class DiskFullTest : public testing::Test {
 protected:
  /// Publishes until nothing fits, and some more. Returns 0 if all went as it must.
  int fill(const char* mount_options, std::size_t payload_bytes) {
    if (!test::enter_namespaces(CLONE_NEWNS) ||
        !test::mount_small_disk(dir_.path(), mount_options))
      return kNoNamespace;
    CacheOptions options;
    options.root = dir_.path() / "root";
    const auto cache = Cache::open(options);
    if (cache->mode() != Mode::kReadWrite)
      return 1;
    int stored = 0;
    int refused = 0;
    for (int i = 0; i < 400; ++i) {
      SampleObject sample(i, std::string(payload_bytes, static_cast<char>(i)));
      const PublishResult result = cache->publish(*sample);
      stored += result.outcome == Published::kStored ? 1 : 0;
      refused += result.outcome == Published::kNotStored ? 1 : 0;
      const bool there = cache->find(sample.key()).has_value();
      if (there != (result.outcome == Published::kStored))
        return 2;
    }
    if (stored == 0 || refused == 0)
      return 3;
    if (cache->counters().snapshot().at("publish_refused.ENOSPC") !=
        static_cast<std::uint64_t>(refused))
      return 4;
    const auto listed = cache->list({});
    if (!listed || listed->size() != static_cast<std::size_t>(stored))
      return 5;
    return cache->verify({}).value().problems.empty() ? 0 : 6;
  }

  void expect_survives(const char* mount_options, std::size_t payload_bytes) {
    test::Campaign campaign;
    ChildProcess child([&] { return fill(mount_options, payload_bytes); });
    const int code = child.wait();
    if (code == kNoNamespace)
      GTEST_SKIP() << "NO USER NAMESPACES HERE: a full disk was not tested";
    campaign.injected();
    if (code != 0)
      campaign.wrong("the child ended with " + std::to_string(code));
  }

  const test::TempDir dir_;
};

TEST_F(DiskFullTest, fault_08_WithoutSpaceNothingHalfIsVisible) {
  expect_survives("size=512k", 10'000);
}

TEST_F(DiskFullTest, fault_09_WithoutInodesNothingHalfIsVisible) {
  expect_survives("size=64m,nr_inodes=64", 1'000);
}

}  // namespace
}  // namespace kiln::cache
