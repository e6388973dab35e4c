#include "cache/older_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "cache/unix_time.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"

namespace kiln::cache {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::uint32_t kOurs = 12;

class OlderFormatsTest : public testing::Test {
 protected:
  OlderFormatsTest() {
    fs::create_directories(ours_.objects());
    fs::permissions(dir_.path(), fs::perms::owner_all);
  }
  /// An object of `format`, in the folder `number`.
  fs::path add(const std::string& format, unsigned number = 0xab) {
    const fs::path folder = ours_.formats() / format / fmt_hex(number);
    fs::create_directories(folder);
    fs::path file = folder / std::string(62, 'c');
    std::ofstream(file) << "1234567";
    return file;
  }
  static std::string fmt_hex(unsigned number) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    return {kDigits[number >> 4U], kDigits[number & 0xFU]};
  }
  std::vector<OlderFormat> find() {
    return find_older_formats(ours_, files_, trust_, counters_);
  }

  const test::TempDir dir_;
  const Layout ours_{dir_.path() / "root", kOurs};
  test::FaultyFileSystem files_;
  const TrustPolicy trust_ = TrustPolicy::of_this_process({});
  Counters counters_;
};

TEST_F(OlderFormatsTest, AreThoseBelowOursAndNoOthers) {
  for (const char* format :
       {"v3", "v10", "v0", "v12", "v13", "v999", "v03", "v-1", "V1", "v1 ", "new"})
    add(format);
  std::vector<std::uint32_t> versions;
  for (const OlderFormat& older : find()) versions.push_back(older.version());
  EXPECT_THAT(versions, ElementsAre(0U, 3U, 10U));
  EXPECT_EQ(counters_.get(Counter::kUntrusted), 0U);
}

TEST_F(OlderFormatsTest, AreToldByNamesAndStatAlone) {
  const fs::path first = add("v1", 0x00);
  add("v1", 0xff);
  fs::last_write_time(first, fs::file_time_type::clock::now() - 24h);
  files_.forget_calls();
  const auto found = find();
  EXPECT_THAT(files_.calls(), Each(testing::AnyOf("list", "lstat", "writable")));
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].folders, ElementsAre(0x00U, 0xffU));
  EXPECT_THAT(found[0].objects, SizeIs(2));
  EXPECT_EQ(found[0].bytes(), 14U);
  EXPECT_LT(unix_now_ns() - found[0].last_used_ns(), 3600LL * 1'000'000'000);
  EXPECT_EQ(found[0].layout.object(found[0].objects[0].key), first);
}

TEST_F(OlderFormatsTest, OfARootWithoutThemCostOneListing) {
  add("v12");
  files_.forget_calls();
  EXPECT_THAT(find(), IsEmpty());
  EXPECT_THAT(files_.calls(), ElementsAre("list"));
}

TEST_F(OlderFormatsTest, ForeignNamesInThemAreNotTheirs) {
  const fs::path folder = add("v1").parent_path();
  std::ofstream(folder / "notes.txt") << "x";
  std::ofstream(folder / std::string(62, 'C')) << "x";
  std::ofstream(folder / (".tmp-" + std::string(32, 'a'))) << "x";
  fs::create_directory(folder / std::string(62, 'd'));
  fs::create_symlink(folder / "notes.txt", folder / std::string(62, 'e'));
  ASSERT_EQ(::mkfifo((folder / std::string(62, 'f')).c_str(), 0600), 0);
  for (const char* name : {"AB", "a", "abc", "zz"}) {
    fs::create_directories(folder.parent_path() / name);
    std::ofstream(folder.parent_path() / name / std::string(62, 'c')) << "x";
  }
  std::ofstream(ours_.formats() / "v2") << "a file";
  const auto found = find();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].objects, SizeIs(1));
  EXPECT_THAT(found[0].folders, ElementsAre(0xabU));
}

TEST_F(OlderFormatsTest, WhatIsLinkedElsewhereIsNotFollowed) {
  const fs::path elsewhere = dir_.path() / "elsewhere";
  fs::rename(add("v1").parent_path().parent_path(), elsewhere);
  fs::create_directory_symlink(elsewhere, ours_.formats() / "v1");
  EXPECT_THAT(find(), IsEmpty());
  fs::create_directory(ours_.formats() / "v2");
  fs::create_directory_symlink(elsewhere / "ab", ours_.formats() / "v2" / "ab");
  const auto found = find();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].folders, IsEmpty());
  EXPECT_THAT(found[0].objects, IsEmpty());
  EXPECT_EQ(counters_.get(Counter::kUntrusted), 3U) << "v1 twice, then ab";
  remove_empty_folders(files_, found[0]);
  EXPECT_TRUE(fs::exists(elsewhere / "ab" / std::string(62, 'c')));
}

TEST_F(OlderFormatsTest, WhatOthersCanWriteOrOwnIsLeftAlone) {
  const fs::path folder = add("v1").parent_path();
  add("v1", 0x01);
  ::chmod(folder.c_str(), 0777);
  EXPECT_THAT(find().at(0).folders, ElementsAre(0x01U));
  ::chmod(folder.c_str(), 0700);
  ::chmod(folder.parent_path().c_str(), 0770);
  EXPECT_THAT(find(), IsEmpty());
  ::chmod(folder.parent_path().c_str(), 0700);
  files_.on_stat = [&](std::string_view path, struct stat& info) {
    if (path == folder)
      info.st_uid = 4711;
  };
  EXPECT_THAT(find().at(0).folders, ElementsAre(0x01U));
  files_.on_stat = [&](std::string_view path, struct stat& info) {
    if (path == folder.parent_path())
      info.st_uid = 4711;
  };
  EXPECT_THAT(find(), IsEmpty());
}

TEST_F(OlderFormatsTest, WhatMayNotBeDeletedIsLeftAlone) {
  add("v1");
  files_.before = [](std::string_view call, int) {
    return call == "writable" ? -EROFS : 0;
  };
  EXPECT_THAT(find().at(0).objects, IsEmpty());
}

TEST_F(OlderFormatsTest, WhatCannotBeListedOrVanishesIsPassedOver) {
  add("v1");
  int lists = 0;
  files_.before = [&](std::string_view call, int) {
    return call == "list" && ++lists == 2 ? -EIO : 0;
  };
  EXPECT_THAT(find().at(0).folders, IsEmpty());
  files_.before = [](std::string_view call, int) { return call == "list" ? -EIO : 0; };
  EXPECT_THAT(find(), IsEmpty());
  files_.before = [](auto, int) { return 0; };
  files_.on_stat = [&](std::string_view path, struct stat&) {
    if (path.ends_with("/ab"))
      fs::remove(std::string(path) + "/" + std::string(62, 'c'));
  };
  EXPECT_THAT(find().at(0).objects, IsEmpty());
}

TEST_F(OlderFormatsTest, AStopEndsTheWalk) {
  add("v1");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(find_older_formats(ours_, files_, trust_, counters_, stop.get_token())
                  .at(0)
                  .objects,
              IsEmpty());
}

TEST_F(OlderFormatsTest, OnlyEmptyFoldersAreRemoved) {
  const fs::path object = add("v1");
  const fs::path emptied = add("v1", 0x01);
  fs::remove(emptied);
  auto found = find();
  remove_empty_folders(files_, found.at(0));
  EXPECT_TRUE(fs::exists(object));
  EXPECT_FALSE(fs::exists(emptied.parent_path()));
  fs::remove(object);
  found = find();
  remove_empty_folders(files_, found.at(0));
  EXPECT_FALSE(fs::exists(object.parent_path().parent_path()));
  EXPECT_TRUE(fs::exists(ours_.objects()));
  EXPECT_THAT(find(), IsEmpty());
}

TEST_F(OlderFormatsTest, ARootBehindALinkHasThemAsWell) {
  add("v1");
  fs::rename(ours_.formats(), dir_.path() / "big disk");
  fs::create_directory_symlink(dir_.path() / "big disk", ours_.formats());
  EXPECT_THAT(find().at(0).objects, SizeIs(1));
}

}  // namespace
}  // namespace kiln::cache
