// Files as files: stored, found by other processes, and given out unchanged.

#include <sys/stat.h>

#include <fstream>

#include "build/artifact.h"
#include "tests/integration/files/file_cache_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/is_error.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"

namespace kiln::test {
namespace {

const Texts kTexts{
    {"k.cubin", std::string("\0cubin", 6)}, {"meta/k.json", "{}"}, {"empty", ""}};

TEST_F(FileCacheTest, AreFoundByAnotherProcessAsTheyWerePut) {
  auto files = files_of(kTexts);
  files[1].is_program = true;  // "k.cubin"
  const auto put = value_of(here_.files.put(request(), files));
  EXPECT_FALSE(put.not_stored);
  EXPECT_EQ(texts_of(put), kTexts);
  Opened other(config());
  const auto found = value_of(other.files.get(request().fields));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->key, put.key);
  EXPECT_EQ(found->outcome, Event::Kind::kHit);
  EXPECT_EQ(texts_of(*found), kTexts);
  struct stat info {};
  ASSERT_EQ(::stat((found->folder / "k.cubin").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0500U);
  ASSERT_EQ(::stat(found->folder.parent_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
  EXPECT_FALSE(value_of(other.files.get(request("2").fields)));

  const auto entry = value_of(other.service->cache().describe(digest(put.key)));
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->kind, cache::Kind::kFiles);
  EXPECT_EQ(entry->template_name, "test_kernel");
  EXPECT_EQ(entry->arch, "sm_90");
  EXPECT_EQ(entry->toolchain, "cc-12");
  EXPECT_EQ(value_of(other.service->cache().verify({})).corrupt, 0U);
}

TEST_F(FileCacheTest, HaveAKeyOfTheirFields) {
  const auto key = [this](const FileFields& fields) {
    return value_of(here_.files.put({.fields = fields}, files_of(kTexts))).key;
  };
  EXPECT_EQ(key({{"a", "1"}, {"b", "2"}}), key({{"b", "2"}, {"a", "1"}}));
  EXPECT_NE(key({{"a", "1"}, {"b", "2"}}), key({{"a", "1b2"}}));
  EXPECT_NE(key({{"a", "1"}}), key({{"a", "2"}}));
  EXPECT_THAT(here_.files.get({}),
              IsError(ErrorCode::kInvalidArgument, HasSubstr("no fields")));
}

TEST_F(FileCacheTest, ThatSomebodyChangesAreGivenOnceMore) {
  const auto first = value_of(here_.files.put(request(), files_of(kTexts)));
  EXPECT_EQ(value_of(here_.files.get(request().fields))->folder, first.folder);
  const fs::path changed = first.folder / "meta/k.json";
  fs::permissions(changed, fs::perms::owner_all);
  std::ofstream(changed) << "{ }";
  const auto again = value_of(here_.files.get(request().fields));
  ASSERT_TRUE(again);
  EXPECT_NE(again->folder, first.folder);
  EXPECT_EQ(texts_of(*again), kTexts);
  fs::remove_all(first.folder.parent_path());
  const auto third = value_of(here_.files.get(request().fields));
  ASSERT_TRUE(third);
  EXPECT_EQ(texts_of(*third), kTexts);
}

TEST_F(FileCacheTest, ThatWereBuiltAnewAreGivenAsTheyAreNow) {
  const auto first = value_of(here_.files.put(request(), files_of(kTexts)));
  value_of(here_.service->cache().remove(digest(first.key)));
  const auto second = value_of(here_.files.put(request(), files_of({{"a", "2"}})));
  EXPECT_EQ(texts_of(second), (Texts{{"a", "2"}}));
  EXPECT_EQ(texts_of(first), kTexts);
}

TEST_F(FileCacheTest, OfADamagedObjectAreAMiss) {
  const auto put = value_of(here_.files.put(request(), files_of(kTexts)));
  const fs::path path = object(put.key);
  fs::permissions(path, fs::perms::owner_all);
  std::fstream file(path, std::ios::in | std::ios::out);
  file.seekp(300);
  file << 'X';
  file.close();
  Opened other(config());
  EXPECT_FALSE(value_of(other.files.get(request().fields)));
  EXPECT_FALSE(value_of(other.files.put(request(), files_of(kTexts))).not_stored);
  EXPECT_TRUE(value_of(other.files.get(request().fields)));
}

TEST_F(FileCacheTest, ThatAreSourceStayOutOfCopiesForOthers) {
  FileRequest with_source = request();
  with_source.sources = {"k.ttir"};
  Texts all = kTexts;
  all["k.ttir"] = "module {}";
  const auto put = value_of(here_.files.put(with_source, files_of(all)));
  EXPECT_EQ(texts_of(put), all);
  const auto object = value_of(here_.service->cache().inspect(digest(put.key)));
  const auto copy = value_of(without_source(*object));
  ASSERT_TRUE(copy);
  EXPECT_EQ(as_text(copy->file()).find("module {}"), std::string_view::npos);
  EXPECT_TRUE(copy->verify_fully());
  value_of(here_.service->cache().remove(digest(put.key)));
  EXPECT_FALSE(here_.service->cache().publish(*copy).error);
  ChildProcess other([this] {  // which was given nothing yet
    Opened own(config());
    const auto found = own.files.get(request().fields);
    return found && *found && texts_of(**found) == kTexts ? 0 : 1;
  });
  EXPECT_EQ(other.wait(), 0);
}

TEST_F(FileCacheTest, WithoutACacheAreGivenAndNotStored) {
  Opened off(service_config("/proc/kiln"));
  const auto put = value_of(off.files.put(request(), files_of(kTexts)));
  EXPECT_TRUE(put.not_stored);
  EXPECT_EQ(texts_of(put), kTexts);
}

TEST_F(FileCacheTest, OfAProcessThatWasKilledAreRemovedByTheNext) {
  const auto folders = [this] {
    return std::distance(fs::directory_iterator(private_.path()),
                         fs::directory_iterator());
  };
  ChildProcess killed([this] {
    return here_.files.put(request(), files_of(kTexts)) ? (::raise(SIGKILL), 0) : 1;
  });
  EXPECT_EQ(killed.wait(), -SIGKILL);
  EXPECT_EQ(folders(), 1);
  value_of(here_.files.put(request(), files_of(kTexts)));
  EXPECT_EQ(folders(), 1);
  const auto mine = value_of(here_.files.get(request().fields))->folder;
  ChildProcess other([this, mine] {  // a forked child has a folder of its own
    const auto found = here_.files.get(request().fields);
    return found && *found && (*found)->folder != mine && texts_of(**found) == kTexts
               ? 0
               : 1;
  });
  EXPECT_EQ(other.wait(), 0);
  EXPECT_TRUE(fs::exists(mine));
}

}  // namespace
}  // namespace kiln::test
