#include "tools/pack_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <stop_token>

#include "tests/support/sample_pack.h"
#include "tests/support/temp_dir.h"

namespace kiln::tools {
namespace {

class PackFileTest : public testing::TestWithParam<const char*> {
 protected:
  /// What comes of a pack of which these bytes were written.
  Result<std::uint64_t> written(ByteView bytes, std::uint64_t objects,
                                const std::stop_token& stop = {}) {
    const auto file = PackFile::create(path_).value();
    EXPECT_TRUE(file->write(bytes));
    return file->commit(objects, nullptr, stop);
  }
  /// There is no pack, nor a rest of one.
  void expect_nothing() { EXPECT_TRUE(std::filesystem::is_empty(dir_.path())); }

  const test::TempDir dir_;
  const std::filesystem::path path_ = dir_.path() / GetParam();
  const std::vector<cache::StoredObject> objects_ = test::objects_of_every_kind();
  const Bytes pack_ = test::pack_of(objects_);
};

TEST_P(PackFileTest, APackThatReadsBackSoundGetsItsName) {
  const auto bytes = written(pack_, objects_.size());
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_EQ(*bytes, std::filesystem::file_size(path_));
}

TEST_P(PackFileTest, APackThatReadsBackWrongGetsNone) {
  for (std::size_t at = 0; at < pack_.size(); at += 97) {
    Bytes changed = pack_;
    changed[at] ^= std::byte{1};
    const auto bytes = written(changed, objects_.size());
    if (!bytes)
      EXPECT_EQ(bytes.error().code, ErrorCode::kCorrupt) << at;
    else  // between two objects, where nothing is
      EXPECT_EQ(changed[at], std::byte{1}) << at;
    std::filesystem::remove(path_);
    expect_nothing();
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{10}, pack_.size() - 1}) {
    EXPECT_FALSE(written(ByteView(pack_).first(size), objects_.size())) << size;
    expect_nothing();
  }
}

TEST_P(PackFileTest, OneOfAnotherNumberOfObjectsOrWithABadRowGetsNone) {
  EXPECT_EQ(written(pack_, objects_.size() + 1).error().code, ErrorCode::kCorrupt);
  Bytes lying = pack_;
  test::store_le(lying, test::row_of(pack_, 0) + 40, std::uint64_t{1} << 40U);
  test::repair_pack(lying);
  const auto refused = written(lying, objects_.size());
  EXPECT_THAT(refused.error().message, testing::HasSubstr("no pack was written"));
  expect_nothing();
}

TEST_P(PackFileTest, AStopWhileItIsReadBackLeavesNone) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(written(pack_, objects_.size(), stop.get_token()).error().code,
            ErrorCode::kCancelled);
  expect_nothing();
}

TEST_P(PackFileTest, APackThatShrinksMoreThanReadersLetPacksGrowIsReadNevertheless) {
  test::SampleObject zeros(1, std::string(std::size_t{80} << 20U, '\0'));
  const auto object = cache::StoredObject::make(*zeros).value();
  const auto bytes = written(test::pack_of(std::span(&object, 1)), 1);
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_EQ(*bytes, std::filesystem::file_size(path_));
  const auto pack = open_pack_file(path_, cache::TrustPolicy::of_this_process({}),
                                   {.is_needed = false});
  ASSERT_TRUE(pack) << pack.error().message;
  EXPECT_TRUE((*pack)->read((*pack)->find(zeros.key()).value(), cache::Depth::kHit));
}

INSTANTIATE_TEST_SUITE_P(PlainAndCompressed, PackFileTest,
                         testing::Values("job.kpack", "job.kpack.zst"),
                         [](const auto& info) {
                           return info.index == 0 ? "Plain" : "Compressed";
                         });

}  // namespace
}  // namespace kiln::tools
