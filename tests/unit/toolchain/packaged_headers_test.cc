#include "toolchain/packaged_headers.h"

#include <sys/stat.h>

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/in_threads.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::device {
namespace {

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

/// A system with glibc's headers, and CUDA's by packages.
class PackagedHeadersTest : public testing::Test {
 protected:
  PackagedHeadersTest() {
    for (const char* const name : {"stdio.h", "bits/libc-header-start.h"})
      write(include_ / name, "#error glibc's");
    write(include_ / "cuda.h", "#define CUDA_VERSION 12040\n");
    for (const char* const name :
         {"cuda_fp16.h", "crt/host_defines.h", "cuda/std/array"})
      write(include_ / name, name);
    list("nvidia-cuda-dev" + std::string(kArchitecture),
         "/.\n/usr\n/usr/include\n/usr/include/crt\n/usr/include/crt/host_defines.h\n"
         "/usr/include/cuda.h\n/usr/include/cuda_fp16.h\n/usr/share/doc/cuda.h\n");
    list("libcu++-dev", "/usr/include/cuda/std\n/usr/include/cuda/std/array\n");
  }

  void list(const std::string& package, const std::string& lines) const {
    write(root_ / "var/lib/dpkg/info" / (package + ".list"), lines);
  }
  [[nodiscard]] std::optional<fs::path> headers(int major = 12) const {
    return packaged_headers(root_, cache_, major);
  }
  /// What is not a folder.
  static std::vector<std::string> names(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& each : fs::recursive_directory_iterator(folder)) {
      if (!each.is_directory())
        names.push_back(each.path().lexically_relative(folder));
    }
    return names;
  }

#if defined(__aarch64__)
  static constexpr const char* kArchitecture = ":arm64";
#else
  static constexpr const char* kArchitecture = ":amd64";
#endif
  const test::TempDir dir_;
  const fs::path root_ = fs::canonical(dir_.path()) / "root";
  const fs::path include_ = root_ / "usr/include";
  const fs::path cache_ = fs::canonical(dir_.path()) / "toolchains";
};

TEST_F(PackagedHeadersTest, AreTheFilesOfThePackagesAndNoOthers) {
  const auto folder = headers();
  ASSERT_TRUE(folder);
  EXPECT_TRUE(is_packaged_headers(*folder));
  EXPECT_EQ(folder->parent_path(), cache_);
  EXPECT_THAT(names(*folder),
              UnorderedElementsAre("cuda.h", "cuda_fp16.h", "crt/host_defines.h",
                                   "cuda/std/array"));
  EXPECT_EQ(fs::canonical(*folder / "cuda_fp16.h"), include_ / "cuda_fp16.h");
  EXPECT_EQ(headers(), folder) << "again";
}

TEST_F(PackagedHeadersTest, OfAnotherMajorVersionOrWithoutAListAreNone) {
  EXPECT_TRUE(has_packaged_headers(root_, 12));
  EXPECT_FALSE(has_packaged_headers(root_, 13));
  EXPECT_EQ(headers(13), std::nullopt);
  EXPECT_EQ(packaged_headers(root_, {}, 12), std::nullopt) << "nowhere";
  EXPECT_EQ(packaged_headers({}, cache_, 12), std::nullopt);
  list("nvidia-cuda-dev" + std::string(kArchitecture), "/usr/include/cuda.h\n");
  EXPECT_EQ(headers(), std::nullopt) << "libcu++ alone is no toolkit";
  fs::remove_all(root_ / "var");
  EXPECT_EQ(headers(), std::nullopt) << "files of nobody's";
  EXPECT_FALSE(fs::exists(cache_));
}

TEST_F(PackagedHeadersTest, LinesThatNameNoHeaderOfTheirsAreLeftOut) {
  list("libthrust-dev",
       "/usr/include/../../etc/passwd\n/usr/include/bits\n/usr/include/gone.h\n"
       "/usr/include/crt/../stdio.h\n/usr/includes/x.h\nstdio.h\n\n/usr/include/\n"
       "usr/include/stdio.h\n//usr/include/stdio.h\n/usr/include//stdio.h\n"
       "/usr/include/./stdio.h\n" +
           std::string("/usr/include/stdio.h\0.cuh\n", 26) + std::string(9000, 'x') +
           "\n");
  EXPECT_EQ(names(headers().value()).size(), 4U);
}

TEST_F(PackagedHeadersTest, OfAnUpgradeAreAnotherFolder) {
  const auto before = headers();
  write(include_ / "cuda_fp8.h", "");
  list("libcub-dev", "/usr/include/cuda_fp8.h\n");
  const auto after = headers();
  EXPECT_NE(after, before);
  EXPECT_EQ(names(*after).size(), 5U);
  EXPECT_EQ(names(*before).size(), 4U) << "others may still read it";
}

TEST_F(PackagedHeadersTest, ALinkThatWasLostOrReplacedIsBack) {
  const auto folder = headers().value();
  fs::remove_all(folder / "crt");
  fs::remove(folder / "cuda.h");
  fs::create_symlink(include_ / "stdio.h", folder / "cuda.h");
  fs::remove(folder / "cuda_fp16.h");
  write(folder / "cuda_fp16.h", "not a link");
  ASSERT_EQ(headers(), folder);
  EXPECT_EQ(names(folder).size(), 4U);
  for (const char* const name : {"cuda.h", "cuda_fp16.h", "crt/host_defines.h"})
    EXPECT_EQ(fs::read_symlink(folder / name), include_ / name);
}

TEST_F(PackagedHeadersTest, AFolderOfOthersIsNotUsed) {
  fs::create_directory(cache_);
  ASSERT_EQ(::chmod(cache_.c_str(), 0777), 0);
  EXPECT_EQ(headers(), std::nullopt);
  EXPECT_TRUE(fs::is_empty(cache_));
}

TEST_F(PackagedHeadersTest, ManyMayMakeThemAtOnce) {
  std::string lines;
  for (int i = 0; i < 300; ++i) {
    const std::string name = "cub/" + std::to_string(i % 7) + "/" + std::to_string(i);
    write(include_ / name, "");
    lines += "/usr/include/" + name + "\n";
  }
  list("libcub-dev", lines);
  test::in_threads(8, [&] {
    const auto folder = headers();
    ASSERT_TRUE(folder);
    EXPECT_EQ(names(*folder).size(), 304U) << "it is whole when it is told";
  });
}

}  // namespace
}  // namespace kiln::device
