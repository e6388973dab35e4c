// Where binaries are: folders, environments of Python, processes.

#include <unistd.h>

#include "binaries/folder.h"
#include "binaries/process.h"
#include "binaries/python_environment.h"
#include "tests/support/elf_builder.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"

namespace kiln::binaries {
namespace {

using test::bytes_of;
using test::IsError;
using test::value_of;

class PlacesTest : public testing::Test {
 protected:
  fs::path write(const fs::path& name, std::string_view text = "") {
    test::write_file(dir_.path() / name, as_bytes(text));
    return dir_.path() / name;
  }
  std::vector<std::string> walked() {
    std::vector<std::string> found;
    EXPECT_TRUE(walk(dir_.path(), [&](const fs::path& path) {
      found.push_back(path.lexically_relative(dir_.path()));
    }));
    return found;
  }

  test::TempDir dir_;
};

TEST_F(PlacesTest, AWalkIsInOrderAndFollowsNoLinks) {
  write("b/y.so");
  write("b/x.so");
  write("a.so");
  fs::create_symlink("/", dir_.path() / "root");
  fs::create_symlink(dir_.path() / "b", dir_.path() / "c");
  EXPECT_THAT(walked(), ElementsAre("a.so", "b/x.so", "b/y.so"));
  EXPECT_THAT(walk(dir_.path() / "none", [](const auto&) {}),
              IsError(ErrorCode::kNotFound));
}

TEST_F(PlacesTest, NamesOfLibrariesMayHaveVersions) {
  for (const char* const name : {"libx.so", "libx.so.1.2", "_C.abi3.so"})
    EXPECT_TRUE(is_library_name(name)) << name;
  for (const char* const name : {"libx.a", "x.soap", "libx.so.py", "x.so.", "so"})
    EXPECT_FALSE(is_library_name(name)) << name;
}

TEST_F(PlacesTest, LibrariesOfAnEnvironmentHaveTheirDistribution) {
  const fs::path packages = "lib/python3.11/site-packages";
  write(packages / "torch/lib/libtorch.so");
  write(packages / "torch/__init__.py");
  write(packages / "own.so");
  write(packages / "torch-2.10.0.dist-info/RECORD",
        "torch/__init__.py,sha256=a,0\n\"torch/lib/libtorch.so\",sha256=b,0\n");
  write(packages / "broken-1.dist-info/METADATA");
  const auto folders = package_folders(dir_.path());
  ASSERT_THAT(folders, ElementsAre(dir_.path() / packages));
  EXPECT_EQ(package_folders(folders[0]), folders);  // the folder of packages itself
  const auto libraries = value_of(libraries_in(folders[0]));
  ASSERT_EQ(libraries.size(), 2);
  EXPECT_EQ(libraries[0].path, folders[0] / "own.so");
  EXPECT_EQ(libraries[0].distribution, "");
  EXPECT_EQ(libraries[1].distribution, "torch 2.10.0");
  EXPECT_THAT(package_folders(dir_.path() / "lib"), IsEmpty());
}

TEST_F(PlacesTest, AProcessHasItsProgramAndItsLibrariesMapped) {
  std::vector<std::string> names;
  for (const MappedFile& each : value_of(mapped_files(::getpid()))) {
    EXPECT_TRUE(each.file) << each.file.error().message;
    names.push_back(each.path);
  }
  EXPECT_THAT(names, Contains(fs::read_symlink("/proc/self/exe").native()));
  constexpr pid_t kNobody = 0x3fffffff;  // above any limit
  EXPECT_THAT(mapped_files(kNobody), IsError(ErrorCode::kNotFound));
}

}  // namespace
}  // namespace kiln::binaries
