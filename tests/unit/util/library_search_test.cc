#include "util/library_search.h"

#include "tests/support/elf_builder.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/loader_cache.h"

namespace kiln {
namespace {

class LibrarySearch : public testing::Test {
 protected:
  [[nodiscard]] fs::path touch(const fs::path& relative) const {
    test::write_file(root_ / relative, {});
    return root_ / relative;
  }
  void touch_all(const std::vector<std::string>& names) const {
    for (const std::string& name : names) test::write_file(root_ / name, {});
  }

  // Paths below root_ and where they were found, in order.
  [[nodiscard]] std::vector<std::string> found(
      const std::string& name = "libnvrtc.so",
      const fs::path& explicit_path = {}) const {
    const auto libraries =
        find_libraries({name, explicit_path, "KILN_NVRTC"}, places_).value();
    std::vector<std::string> lines;
    for (const LibraryCandidate& each : libraries)
      lines.push_back(each.path.lexically_relative(root_).native() + ": " +
                      each.found_in);
    return lines;
  }

  const test::TempDir dir_;
  const fs::path root_ = fs::canonical(dir_.path());
  LibraryPlaces places_;
};

TEST_F(LibrarySearch, NothingAnywhereIsAnEmptyList) {
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(LibrarySearch, PlacesAreTriedInTheirOrder) {
  const std::string venv = "venv/lib/python3.12/site-packages/nvidia/cu13/lib/";
  const std::string own = "own/.deps/";
  touch_all(
      {own + "nvidia/cu13/lib/libnvrtc.so.13",
       own + "nvrtc-12/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", venv + "libnvrtc.so.13",
       "venv/lib/libnvrtc.so.12", "local/cuda-12.9/lib64/libnvrtc.so.12",
       "local/cuda-13.0/lib64/libnvrtc.so.13", "local/cuda-9.2/lib64/libnvrtc.so.9.2",
       "usr/lib/libnvrtc.so.11.2", "path1/libnvrtc.so.12", "path2/libnvrtc.so.13",
       "home/lib64/libnvrtc.so.13"});
  places_.own_folders = {root_ / "own/build/dev/bin"};
  places_.python_environments = {root_ / "venv"};
  places_.toolkits = root_ / "local";
  places_.default_folders = {root_ / "usr/lib"};
  places_.loader_path = {root_ / "path1", root_ / "absent", root_ / "path2"};
  places_.cuda_home = root_ / "home";
  places_.loaded = {touch("loaded/libnvrtc.so.12"), touch("loaded/libother.so.1")};
  EXPECT_THAT(
      found("libnvrtc.so", touch("named/anything.so")),
      ElementsAre(
          "named/anything.so: KILN_NVRTC",
          "loaded/libnvrtc.so.12: loaded by this process",
          "home/lib64/libnvrtc.so.13: CUDA_HOME",
          "path1/libnvrtc.so.12: LD_LIBRARY_PATH",
          "path2/libnvrtc.so.13: LD_LIBRARY_PATH",
          "usr/lib/libnvrtc.so.11.2: the loader's folders",
          "local/cuda-13.0/lib64/libnvrtc.so.13: an installed toolkit",
          "local/cuda-12.9/lib64/libnvrtc.so.12: an installed toolkit",
          "local/cuda-9.2/lib64/libnvrtc.so.9.2: an installed toolkit",
          venv + "libnvrtc.so.13: a Python environment",
          "venv/lib/libnvrtc.so.12: a Python environment",
          own + "nvidia/cu13/lib/libnvrtc.so.13: the project's .deps",
          own + "nvrtc-12/nvidia/cuda_nvrtc/lib/libnvrtc.so.12: the project's .deps"));
}

TEST_F(LibrarySearch, ThePackageForPythonFindsTheWheelsBesideItself) {
  const std::string own = "lib/python3.12/site-packages/nvidia/cu13/lib/";
  const std::string other = "venv/lib/python3.12/site-packages/nvidia/cu13/lib/";
  touch_all({own + "libnvrtc.so.13", other + "libnvrtc.so.13",
             "usr/nvidia/cu13/lib/libnvrtc.so.13"});
  places_.own_folders = {root_ / "lib/python3.12/site-packages/kiln/lib",
                         root_ / "lib/python3.12/site-packages/kiln/bin",
                         root_ / "usr/local/bin"};  // no package: it has another name
  places_.python_environments = {root_ / "venv"};
  EXPECT_THAT(found(), ElementsAre(own + "libnvrtc.so.13: a Python environment",
                                   other + "libnvrtc.so.13: a Python environment"));
}

TEST_F(LibrarySearch, OneFileUnderManyNamesCountsOnceWhereItWasFoundFirst) {
  touch_all({"cuda-13.0/lib/libnvrtc.so.13.0.88"});
  fs::create_symlink("libnvrtc.so.13.0.88", root_ / "cuda-13.0/lib/libnvrtc.so.13");
  fs::create_symlink("libnvrtc.so.13", root_ / "cuda-13.0/lib/libnvrtc.so");
  fs::create_symlink("lib", root_ / "cuda-13.0/lib64");
  fs::create_symlink("cuda-13.0", root_ / "cuda");
  places_.toolkits = root_;
  places_.cuda_home = root_ / "cuda";
  EXPECT_THAT(found(), ElementsAre("cuda-13.0/lib/libnvrtc.so.13.0.88: CUDA_HOME"));
}

TEST_F(LibrarySearch, WithinOneFolderTheHighestVersionComesFirst) {
  places_.loader_path = {root_};
  touch_all({"libnvrtc.so.9.2", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
             "libnvrtc.so.11.2", "libnvrtc.alt.so.13", "libnvrtc-builtins.so.13.0",
             "libnvrtc.so.13.debug"});
  EXPECT_THAT(
      found(),
      ElementsAre("libnvrtc.so.13: LD_LIBRARY_PATH", "libnvrtc.so.12: LD_LIBRARY_PATH",
                  "libnvrtc.so.11.2: LD_LIBRARY_PATH",
                  "libnvrtc.so.9.2: LD_LIBRARY_PATH", "libnvrtc.so: LD_LIBRARY_PATH"));
}

TEST_F(LibrarySearch, AStubOfTheDriverIsNotTakenForIt) {
  places_.loader_path = {root_ / "stubs", root_ / "driver"};
  touch_all({"stubs/libcuda.so", "driver/libcuda.so.1"});
  EXPECT_THAT(found("libcuda.so.1"),
              ElementsAre("driver/libcuda.so.1: LD_LIBRARY_PATH"));
}

TEST_F(LibrarySearch, BrokenLinksAndFoldersAreNoLibraries) {
  places_.loader_path = {root_};
  fs::create_symlink("gone", root_ / "libnvrtc.so.13");
  fs::create_symlink("libnvrtc.so.11", root_ / "libnvrtc.so.11");  // a loop
  fs::create_directory(root_ / "libnvrtc.so.12");
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(LibrarySearch, AnExplicitPathMayBeAToolkitsFolder) {
  touch_all({"cuda-12.9/lib64/libnvrtc.so.12"});
  EXPECT_THAT(found("libnvrtc.so", root_ / "cuda-12.9"),
              ElementsAre("cuda-12.9/lib64/libnvrtc.so.12: KILN_NVRTC"));
}

TEST_F(LibrarySearch, AnExplicitPathThatIsNotThereIsAnErrorThatNamesIt) {
  touch_all({"path1/libnvrtc.so.12"});
  places_.loader_path = {root_ / "path1"};
  EXPECT_THAT(
      find_libraries({"libnvrtc.so", root_ / "absent.so", "KILN_NVRTC"}, places_),
      test::IsError(ErrorCode::kUnavailable,
                    testing::AllOf(HasSubstr("KILN_NVRTC"), HasSubstr("absent.so"))));
}

// As ldconfig writes it.
Bytes loader_cache(const std::vector<LoaderCacheEntry>& entries, std::uint32_t flags) {
  Bytes cache = test::bytes_of("glibc-ld.so.cache1.1");
  append_le(cache, static_cast<std::uint32_t>(entries.size()));
  cache.resize(48);
  std::string strings;
  const std::size_t base = 48 + entries.size() * 24;
  for (const LoaderCacheEntry& entry : entries) {
    const std::size_t name_at = base + strings.size();
    append_le(cache, flags);
    append_le(cache, static_cast<std::uint32_t>(name_at));
    append_le(cache, static_cast<std::uint32_t>(name_at + entry.name.size() + 1));
    append_le(cache, std::uint32_t{0});
    append_le(cache, std::uint64_t{0});
    strings += entry.name + '\0' + entry.path + '\0';
  }
  append(cache, as_bytes(strings));
  return cache;
}

#if defined(__aarch64__)
constexpr std::uint32_t kHere = 0x0a03;
#else
constexpr std::uint32_t kHere = 0x0303;
#endif

TEST_F(LibrarySearch, TheLoadersCacheReplacesTheDefaultFolders) {
  const fs::path listed = touch("opt/libnvrtc.so.13");
  touch_all({"usr/lib/libnvrtc.so.11.2"});
  places_.default_folders = {root_ / "usr/lib"};
  places_.loader_cache = root_ / "ld.so.cache";
  test::write_file(
      places_.loader_cache,
      loader_cache({{"libnvrtc.so.13", listed}, {"libz.so.1", "/x"}}, kHere));
  EXPECT_THAT(found(), ElementsAre("opt/libnvrtc.so.13: the loader's cache"));
}

TEST(LoaderCache, LeavesOutOtherArchitectures) {
  const std::vector<LoaderCacheEntry> entries{{"liba.so", "/lib/liba.so"}};
  EXPECT_EQ(read_loader_cache(loader_cache(entries, kHere)), entries);
  EXPECT_THAT(read_loader_cache(loader_cache(entries, 0x0003)), IsEmpty());
}

TEST(LoaderCache, IsFoundBehindTheOlderLayout) {
  const std::vector<LoaderCacheEntry> entries{{"liba.so", "/lib/liba.so"}};
  Bytes cache(40);
  append(cache, loader_cache(entries, kHere));
  EXPECT_EQ(read_loader_cache(cache), entries);
}

TEST(LoaderCache, NoTruncationOrFlippedBitCrashesTheReader) {
  const Bytes whole =
      loader_cache({{"liba.so", "/lib/liba.so"}, {"libb.so", "/lib/libb.so"}}, kHere);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_LE(read_loader_cache(cut).size(), 2U);
  }
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    Bytes flipped = whole;
    flipped[bit / 8] ^= std::byte{static_cast<unsigned char>(1U << bit % 8)};
    EXPECT_LE(read_loader_cache(flipped).size(), 8U);
  }
}

TEST(LibraryPlaces, OfThisProcessKnowTheProgramAndWhatItLoaded) {
  const LibraryPlaces places = LibraryPlaces::of_process();
  EXPECT_THAT(places.own_folders,
              testing::Contains(fs::read_symlink("/proc/self/exe").parent_path()));
  const auto libc = find_libraries({"libc.so.6", {}, {}}, places).value();
  ASSERT_THAT(libc, testing::Not(IsEmpty()));
  EXPECT_EQ(libc.front().found_in, "loaded by this process");
}

TEST(IsVersionOf, TakesDotsAndDigitsOnly) {
  EXPECT_TRUE(is_version_of("libnvrtc.so", "libnvrtc.so"));
  EXPECT_TRUE(is_version_of("libnvrtc.so.13", "libnvrtc.so"));
  EXPECT_TRUE(is_version_of("libnvrtc.so.13.0.88", "libnvrtc.so"));
  EXPECT_TRUE(is_version_of("libcuda.so.1", "libcuda.so.1"));
  for (const char* name : {"libnvrtc.so.", "libnvrtc.so13", "libnvrtc.so.x",
                           "libnvrtc.s", "libnvrtc.so..13", "xlibnvrtc.so", ""})
    EXPECT_FALSE(is_version_of(name, "libnvrtc.so")) << name;
  EXPECT_FALSE(is_version_of("libcuda.so.10", "libcuda.so.1"));
}

}  // namespace
}  // namespace kiln
