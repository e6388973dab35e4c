// What a compiler read against what the key says.

#include "key/opened_files.h"

#include <unistd.h>

#include <vector>

#include "files.h"
#include "key/header_scan.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::key {
namespace {

using test::later;
using test::write;
using Paths = std::vector<fs::path>;

class OpenedFilesTest : public testing::Test {
 protected:
  OpenedFilesTest() {
    write(own_ / "a.h", "#include \"d/b.h\"");
    write(own_ / "d" / "b.h", "b");
    write(toolkit_ / "cuda.h", "cuda");
    input_.source = "#include <a.h>\n#include <cuda.h>\n";
    input_.include_dirs = {own_};
    take_snapshot();
  }

  void take_snapshot(std::chrono::system_clock::time_point now = later()) {
    auto scan = HeaderScanner({}).scan(input_, {{toolkit_}}, {}, now);
    ASSERT_TRUE(scan) << scan.error().message;
    headers_ = *scan->headers;
  }
  std::string reason(const std::vector<fs::path>& paths,
                     std::chrono::system_clock::time_point started =
                         std::chrono::system_clock::now()) {
    return reason(test::opened(paths), started);
  }
  std::string reason(const std::vector<OpenedFile>& files,
                     std::chrono::system_clock::time_point started =
                         std::chrono::system_clock::now()) {
    const auto unkeyed = find_unkeyed(headers_, {files, started});
    if (!unkeyed)
      return "";
    EXPECT_EQ(unkeyed->path, files.back().path);
    return unkeyed->reason;
  }
  std::string reason_of_missed(const std::vector<fs::path>& paths) {
    const auto unkeyed =
        find_unkeyed(headers_, {{}, std::chrono::system_clock::now(), paths});
    if (!unkeyed)
      return "";
    EXPECT_EQ(unkeyed->path, paths.back());
    EXPECT_EQ(unkeyed->use, FileUse::kMissed);
    return unkeyed->reason;
  }

  test::TempDir dir_;
  fs::path own_ = dir_.path() / "own";
  fs::path toolkit_ = dir_.path() / "toolkit";
  SourceKeyInput input_;
  HeaderSnapshot headers_;
};

TEST_F(OpenedFilesTest, AreAllKeyedWhereTheScanSawThem) {
  fs::create_directory_symlink(own_, dir_.path() / "alias");
  fs::create_directory_symlink(toolkit_, dir_.path() / "cuda");
  EXPECT_EQ(
      reason(Paths{own_ / "a.h", own_ / "d/b.h", own_ / "d/../a.h", toolkit_ / "cuda.h",
                   dir_.path() / "alias/a.h", dir_.path() / "cuda/cuda.h"}),
      "");
}

TEST_F(OpenedFilesTest, OutsideBothSetsAreUnkeyed) {
  write(own_ / "c.h", "");
  EXPECT_THAT(reason(Paths{own_ / "a.h", own_ / "c.h"}), HasSubstr("no #include"));
}

TEST_F(OpenedFilesTest, ReachedByAComputedIncludeNameIt) {
  input_.source += "#define STR(x) #x\n#include STR(c.h)\n";
  write(own_ / "c.h", "");
  take_snapshot();
  EXPECT_EQ(reason(Paths{own_ / "c.h"}),
            "reached by '#include STR(c.h)' in kernel.cu line 4, which names no file");
  EXPECT_EQ(reason(Paths{own_ / "a.h", toolkit_ / "cuda.h"}), "");
  fs::create_directory_symlink(own_, dir_.path() / "alias");
  EXPECT_NE(reason(Paths{dir_.path() / "alias/a.h"}), "")
      << "by a way the key cannot know";
}

TEST_F(OpenedFilesTest, ChangedMeanwhileAreUnkeyed) {
  write(own_ / "d/b.h", "c");
  EXPECT_EQ(reason(Paths{own_ / "d/b.h"}), "changed since the key was made");
  write(toolkit_ / "cuda.h", "more");
  EXPECT_EQ(reason(Paths{toolkit_ / "cuda.h"}), "changed since the key was made");
}

TEST_F(OpenedFilesTest, ChangedWithinOneTickOfTheClockAreUnkeyed) {
  take_snapshot(std::chrono::system_clock::now());  // nothing is settled
  EXPECT_EQ(reason(Paths{own_ / "d/b.h"}), "");
  // The same stamp with another content cannot be made here; another digest can.
  for (HeaderFile& file : headers_.files) file.content = Digest();
  EXPECT_EQ(reason(Paths{own_ / "d/b.h"}), "changed since the key was made");
}

TEST_F(OpenedFilesTest, ReplacedByTheSameContentAreKeyedOnlyIfThatWasLongBefore) {
  fs::remove(own_ / "d/b.h");
  write(own_ / "d/b.h", "b");
  EXPECT_EQ(reason(Paths{own_ / "d/b.h"}), "written while it was compiled");
  EXPECT_EQ(reason(Paths{own_ / "d/b.h"}, later()), "");
}

TEST_F(OpenedFilesTest, AreJudgedByTheDescriptorThatTheCompilerHad) {
  auto files = test::opened({own_ / "d/b.h"});
  EXPECT_EQ(reason(files), "");
  files[0].stamp->inode += 1;  // the path was another file's meanwhile
  EXPECT_EQ(reason(files), "changed since the key was made");
  EXPECT_EQ(reason(files, later()), "changed since the key was made");
}

TEST_F(OpenedFilesTest, WhoseStampsSayTooLittleAreReadAgain) {
  auto files = test::opened({own_ / "d/b.h"});
  for (HeaderFile& file : headers_.files) file.content = Digest();
  if (files[0].stamp->reliable) {
    EXPECT_EQ(reason(files), "") << "the stamp is as it was";
  }
  files[0].stamp->reliable = false;
  for (HeaderFile& file : headers_.files) file.stamp.reliable = false;
  EXPECT_NE(reason(files), "");
}

TEST_F(OpenedFilesTest, GoneOrNewAreUnkeyed) {
  fs::remove(own_ / "d/b.h");
  EXPECT_EQ(reason(Paths{own_ / "d/b.h"}), "gone since it was compiled");
  write(toolkit_ / "new.h", "");
  EXPECT_THAT(reason(Paths{toolkit_ / "new.h"}), HasSubstr("new in the toolkit"));
}

TEST_F(OpenedFilesTest, OfAToolkitThatTheScanDidNotReachAreUnkeyed) {
  input_.source = "#include <a.h>\n";
  take_snapshot();
  EXPECT_NE(reason(Paths{toolkit_ / "cuda.h"}), "");
}

/// As Nix and uv install packages: links to files, and to folders, of elsewhere.
TEST_F(OpenedFilesTest, OfAToolkitOfLinksAreKeyedThroughParentFoldersToo) {
  const fs::path store = dir_.path() / "store";
  write(store / "x" / "one.h", "1");
  write(store / "folder" / "sub" / "two.h", "2");
  write(store / "beside.h", "3");
  fs::create_directories(toolkit_ / "d");
  fs::create_directories(toolkit_ / "e");
  fs::create_symlink(store / "x/one.h", toolkit_ / "d/one.h");
  fs::create_directory_symlink(store / "folder", toolkit_ / "folder");
  take_snapshot();
  EXPECT_EQ(reason(Paths{toolkit_ / "d/one.h", toolkit_ / "e/../d/one.h",
                         toolkit_ / "folder/sub/../sub/two.h"}),
            "");
  EXPECT_NE(reason(Paths{toolkit_ / "folder/../beside.h"}), "") << "it leads elsewhere";
}

TEST_F(OpenedFilesTest, ThatNameTheTimeOfTheBuildAreUnkeyed) {
  write(own_ / "d/b.h", "int t = __TIME__;");
  write(toolkit_ / "cuda.h", "__DATE__");
  take_snapshot();
  EXPECT_EQ(reason(Paths{own_ / "a.h"}), "");
  EXPECT_EQ(reason(Paths{own_ / "d/b.h"}),
            "which names __TIME__ in line 1: each build gives it another value");
  EXPECT_THAT(reason(Paths{toolkit_ / "cuda.h"}), HasSubstr("the time of the build"));
}

// --- where the compiler found nothing ----------------------------------------------

TEST_F(OpenedFilesTest, MissedWhereTheScanLookedAreKeyed) {
  input_.source += "#include \"none.h\"\n#if __has_include(<plain>)\n#endif\n";
  take_snapshot();
  EXPECT_EQ(reason_of_missed({"/none.h", own_ / "none.h", toolkit_ / "none.h",
                              own_ / "plain", own_ / "plain.stdh", own_ / "cuda.h"}),
            "");
}

TEST_F(OpenedFilesTest, MissedWhereTheScanDidNotLookAreUnkeyed) {
  EXPECT_THAT(reason_of_missed({own_ / "none.h"}), HasSubstr("computed condition"));
  EXPECT_NE(reason_of_missed({"/none.h"}), "");
  EXPECT_NE(reason_of_missed({own_ / "d" / "a.h"}), "");
  EXPECT_NE(reason_of_missed({own_}), "");
  EXPECT_NE(reason_of_missed({""}), "");
}

TEST_F(OpenedFilesTest, MissedByAComputedConditionNameIt) {
  input_.source += "#define CAT(a) <a.h>\n#if __has_include(CAT(opt))\n#endif\n";
  take_snapshot();
  EXPECT_EQ(reason_of_missed({own_ / "cuda.h", own_ / "opt.h"}),
            "for a computed condition, such as '__has_include(CAT(opt))' in kernel.cu "
            "line 4, which names no file");
}

TEST_F(OpenedFilesTest, MissedThatWereThereForTheKeyAreUnkeyed) {
  EXPECT_THAT(reason_of_missed({own_ / "a.h"}), HasSubstr("was there"));
  EXPECT_THAT(reason_of_missed({toolkit_ / "cuda.h"}), HasSubstr("was there"));
}

TEST_F(OpenedFilesTest, MissedInsideTheToolkitAreKeyedByAnyNameOfIt) {
  fs::create_directory_symlink(toolkit_, dir_.path() / "cuda");
  EXPECT_EQ(reason_of_missed({toolkit_ / "none.h", toolkit_ / "d/none.h",
                              dir_.path() / "cuda/none.h"}),
            "");
  EXPECT_NE(reason_of_missed({toolkit_ / "../none.h"}), "");
  fs::create_directory_symlink(own_, toolkit_ / "out");
  EXPECT_NE(reason_of_missed({toolkit_ / "out/../none.h"}), "") << "it leads elsewhere";
}

TEST_F(OpenedFilesTest, MissedInAFolderOfTheToolkitThatCannotBeListedAreUnkeyed) {
  if (::geteuid() == 0)
    GTEST_SKIP() << "root may list everything";
  write(toolkit_ / "d/e/x.h", "");
  fs::permissions(toolkit_ / "d", fs::perms::owner_exec);
  take_snapshot();
  EXPECT_EQ(reason_of_missed({toolkit_ / "none.h", toolkit_ / "d/none.h"}),
            "in a folder that cannot be listed");
  EXPECT_NE(reason_of_missed({toolkit_ / "d/e/none.h"}), "");
  fs::permissions(toolkit_ / "d", fs::perms::owner_all);
}

TEST_F(OpenedFilesTest, MissedWhereTheToolkitsHeadersLookFirstAreKeyed) {
  write(toolkit_ / "cuda.h",
        "#include <d/asked.h>\n#if __has_include(<plain>)\n#endif");
  write(toolkit_ / "cccl/thrust/tag.h", "");
  const std::vector<fs::path> folders{toolkit_, toolkit_ / "cccl"};
  headers_ = *HeaderScanner({}).scan(input_, folders, {}, later())->headers;
  EXPECT_EQ(reason_of_missed({own_ / "d/asked.h", own_ / "plain", own_ / "plain.stdh",
                              own_ / "thrust/tag.h", own_ / "cccl/thrust/tag.h"}),
            "");
  EXPECT_NE(reason_of_missed({own_ / "d/asked"}), "");
  EXPECT_NE(reason_of_missed({own_ / "d/d/asked.h"}), "");
}

TEST_F(OpenedFilesTest, AReportThatWasCutIsUnkeyed) {
  const auto unkeyed =
      find_unkeyed(headers_, {{}, std::chrono::system_clock::now(), {}, false});
  ASSERT_TRUE(unkeyed);
  EXPECT_THAT(to_string(*unkeyed), HasSubstr("more files"));
}

TEST_F(OpenedFilesTest, AHeaderThatIsChangedGoneOrNewIsAChange) {
  EXPECT_FALSE(has_changed(headers_.lookups));
  write(toolkit_ / "unrelated.h", "");
  EXPECT_FALSE(has_changed(headers_.lookups));
  write(own_ / "cuda.h", "in front of the toolkit's");
  EXPECT_TRUE(has_changed(headers_.lookups));
  fs::remove(own_ / "cuda.h");
  EXPECT_FALSE(has_changed(headers_.lookups));
  write(own_ / "d" / "b.h", "other");
  EXPECT_TRUE(has_changed(headers_.lookups));
  take_snapshot();
  EXPECT_FALSE(has_changed(headers_.lookups));
  fs::remove(own_ / "d" / "b.h");
  EXPECT_TRUE(has_changed(headers_.lookups));
}

}  // namespace
}  // namespace kiln::key
