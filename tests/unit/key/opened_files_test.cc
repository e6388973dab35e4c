// What a compiler read against what the key says.

#include "key/opened_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "files.h"
#include "key/header_scan.h"
#include "tests/support/temp_dir.h"

namespace kiln::key {
namespace {

namespace fs = std::filesystem;
using test::later;
using test::write;
using testing::HasSubstr;

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
    auto scan = HeaderScanner({}).scan(input_, toolkit_, now);
    ASSERT_TRUE(scan) << scan.error().message;
    headers_ = std::move(scan->headers);
  }
  std::string reason(const std::vector<fs::path>& paths,
                     std::chrono::system_clock::time_point started =
                         std::chrono::system_clock::now()) {
    const auto unkeyed = find_unkeyed(headers_, {paths, started});
    if (!unkeyed)
      return "";
    EXPECT_EQ(unkeyed->path, paths.back());
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
  EXPECT_EQ(reason({own_ / "a.h", own_ / "d/b.h", own_ / "d/../a.h", own_ / "d",
                    toolkit_ / "cuda.h", dir_.path() / "alias/a.h",
                    dir_.path() / "cuda/cuda.h"}),
            "");
}

TEST_F(OpenedFilesTest, OutsideBothSetsAreUnkeyed) {
  write(own_ / "c.h", "");
  EXPECT_THAT(reason({own_ / "a.h", own_ / "c.h"}), HasSubstr("no #include"));
}

TEST_F(OpenedFilesTest, ReachedByAComputedIncludeNameIt) {
  input_.source += "#define STR(x) #x\n#include STR(c.h)\n";
  write(own_ / "c.h", "");
  take_snapshot();
  EXPECT_EQ(reason({own_ / "c.h"}),
            "reached by '#include STR(c.h)' in kernel.cu line 4, which names no file");
  EXPECT_EQ(reason({own_ / "a.h", toolkit_ / "cuda.h"}), "");
  fs::create_directory_symlink(own_, dir_.path() / "alias");
  EXPECT_NE(reason({dir_.path() / "alias/a.h"}), "") << "by a way the key cannot know";
}

TEST_F(OpenedFilesTest, ChangedMeanwhileAreUnkeyed) {
  write(own_ / "d/b.h", "c");
  EXPECT_EQ(reason({own_ / "d/b.h"}), "changed since the key was made");
  write(toolkit_ / "cuda.h", "more");
  EXPECT_EQ(reason({toolkit_ / "cuda.h"}), "changed since the key was made");
}

TEST_F(OpenedFilesTest, ChangedWithinOneTickOfTheClockAreUnkeyed) {
  take_snapshot(std::chrono::system_clock::now());  // nothing is settled
  EXPECT_EQ(reason({own_ / "d/b.h"}), "");
  // The same stamp with another content cannot be made here; another digest can.
  for (HeaderFile& file : headers_.files) file.content = cache::Digest();
  EXPECT_EQ(reason({own_ / "d/b.h"}), "changed since the key was made");
}

TEST_F(OpenedFilesTest, ReplacedByTheSameContentAreKeyedOnlyIfThatWasLongBefore) {
  fs::remove(own_ / "d/b.h");
  write(own_ / "d/b.h", "b");
  EXPECT_EQ(reason({own_ / "d/b.h"}), "written while it was compiled");
  EXPECT_EQ(reason({own_ / "d/b.h"}, later()), "");
}

TEST_F(OpenedFilesTest, GoneOrNewAreUnkeyed) {
  fs::remove(own_ / "d/b.h");
  EXPECT_EQ(reason({own_ / "d/b.h"}), "gone since it was compiled");
  write(toolkit_ / "new.h", "");
  EXPECT_THAT(reason({toolkit_ / "new.h"}), HasSubstr("new in the toolkit"));
}

TEST_F(OpenedFilesTest, OfAToolkitThatTheScanDidNotReachAreUnkeyed) {
  input_.source = "#include <a.h>\n";
  take_snapshot();
  EXPECT_NE(reason({toolkit_ / "cuda.h"}), "");
}

}  // namespace
}  // namespace kiln::key
