// Inputs of files: what their build has read and no field names.

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "tests/integration/files/file_cache_fixture.h"
#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"

namespace kiln::test {
namespace {

using std::chrono::seconds;

class InputsTest : public FileCacheTest {
 protected:
  InputsTest() {
    write("a.h", "1");
    settle();
  }

  [[nodiscard]] fs::path input(const std::string& name) const {
    return temp_.path() / name;
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(input(name)) << text;
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream file(input(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Until an input counts as older than a build that begins now.
  static void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }

  /// Copies a.h.
  Result<CachedFiles> get(FileCache& files) {
    return files.build_once(
        request(), seconds(60), [this](FileBuild& build) -> Result<void> {
          ++builds_;
          std::ofstream(value_of(build.folder()) / "copy") << read("a.h");
          return build.add_inputs({input("a.h")});
        });
  }

  std::atomic<int> builds_ = 0;
};

TEST_F(InputsTest, LeadEachContentToItsFiles) {
  for (const std::string text : {"1", "2", "1", "2"}) {
    write("a.h", text);
    settle();
    EXPECT_EQ(texts_of(value_of(get(here_.files))), (Texts{{"copy", text}}));
    Opened other(config());
    const auto found = value_of(other.files.get(request().fields));
    ASSERT_TRUE(found);
    EXPECT_EQ(texts_of(*found), (Texts{{"copy", text}}));
  }
  EXPECT_EQ(builds_, 2);
  EXPECT_TRUE(here_.files.remove(request().fields));
  EXPECT_FALSE(value_of(here_.files.get(request().fields)));
}

TEST_F(InputsTest, AreReadByManyThreadsAndBuiltFromOnce) {
  test::in_threads(8, [this] {
    EXPECT_EQ(texts_of(value_of(get(here_.files))), (Texts{{"copy", "1"}}));
  });
  EXPECT_EQ(builds_, 1);
}

TEST_F(InputsTest, OfADamagedListAreAMiss) {
  const auto first = value_of(get(here_.files));
  const std::string preimage_key = first.key;
  for (const auto& entry :
       fs::recursive_directory_iterator(temp_.path() / "cache" / "objects")) {
    if (!entry.is_regular_file() || entry.path() == object(preimage_key))
      continue;
    fs::permissions(entry.path(), fs::perms::owner_all);
    fs::resize_file(entry.path(), entry.file_size() - 20);
  }
  Opened other(config());
  EXPECT_FALSE(value_of(other.files.get(request().fields)));
  EXPECT_EQ(texts_of(value_of(get(other.files))), (Texts{{"copy", "1"}}));
  EXPECT_EQ(builds_, 2);
}

TEST_F(InputsTest, ThatAreNoPathsAreRefused) {
  auto begun = value_of(here_.files.begin(request(), seconds(60)));
  auto& build = std::get<FileBuild>(begun);
  EXPECT_THAT(build.add_inputs({std::string("/a\0b", 4)}),
              IsError(ErrorCode::kInvalidArgument, HasSubstr("NUL")));
}

}  // namespace
}  // namespace kiln::test
