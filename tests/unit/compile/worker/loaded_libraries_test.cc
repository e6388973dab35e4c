// Which libraries a process has, by the loader's word and not by the files.

#include "compile/worker/loaded_libraries.h"

#include <dlfcn.h>

#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/elf.h"

namespace kiln::compile {
namespace {

/// Some library that every C++ program has, as the loader has it: one that allocates
/// nothing when it is loaded, which would be a leak of its copy.
LoadedLibrary a_library() {
  for (auto& library : loaded_libraries()) {
    if (library.path.filename().native().starts_with("libm.so"))
      return library;
  }
  return {};
}

/// A copy of it that is loaded as long as this is.
class LoadedCopy {
 public:
  explicit LoadedCopy(const std::string& name) : path_(folder_.path() / name) {
    fs::copy_file(a_library().path, path_);
    handle_ = ::dlopen(path_.c_str(), RTLD_LAZY | RTLD_LOCAL);
    EXPECT_NE(handle_, nullptr);
  }
  LoadedCopy(const LoadedCopy&) = delete;
  LoadedCopy& operator=(const LoadedCopy&) = delete;
  ~LoadedCopy() {
    if (handle_ != nullptr)
      ::dlclose(handle_);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  const test::TempDir folder_;
  const fs::path path_;
  void* handle_ = nullptr;
};

TEST(LoadedLibraries, HaveTheBuildIdsOfTheirFiles) {
  const LoadedLibrary library = a_library();
  ASSERT_FALSE(library.path.empty());
  EXPECT_THAT(library.build_id, testing::MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(library.build_id, read_build_id(library.path).value_or(""));
}

TEST(LoadedLibraries, KeepTheBuildIdOfAFileThatIsGone) {
  const LoadedCopy copy("libcopy.so");
  fs::remove(copy.path());
  EXPECT_EQ(loaded_as(copy.path()), (LoadedLibrary{copy.path(), a_library().build_id}));
}

TEST(LoadedLibraries, AreFoundThroughALinkToo) {
  const LoadedCopy copy("libcopy.so");
  const auto link = copy.path().parent_path() / "link.so";
  fs::create_symlink(copy.path(), link);
  EXPECT_EQ(loaded_as(link).path, copy.path());
  EXPECT_THAT(loaded_as(copy.path().parent_path() / "other.so").path.native(),
              IsEmpty());
  EXPECT_THAT(loaded_as({}).path.native(), IsEmpty());
}

TEST(LoadedLibraries, AreNvrtcsBuiltinsByTheirName) {
  EXPECT_EQ(loaded_named("libnvrtc-builtins"), LoadedLibrary{});
  const LoadedCopy copy("libnvrtc-builtins.so.13.0");
  EXPECT_EQ(loaded_named("libnvrtc-builtins"),
            (LoadedLibrary{copy.path(), a_library().build_id}));
}

}  // namespace
}  // namespace kiln::compile
