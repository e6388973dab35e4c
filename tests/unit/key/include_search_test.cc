// Where an #include finds its file, place by place.

#include "key/include_search.h"

#include <unistd.h>

#include "files.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::key {
namespace {

using test::write;
using testing::Key;

/// Two folders of the request's and two of the toolkit's, the second in the first.
class IncludeSearchTest : public testing::Test {
 protected:
  IncludeSearchTest() {
    input_.include_dirs = {dir_.path() / "one", dir_.path() / "two"};
  }

  [[nodiscard]] std::string at(const std::string& path) const {
    return (dir_.path() / path).native();
  }
  void make(const std::string& path) const { write(at(path), ""); }

  IncludeSearch& search() {
    if (!search_)
      search_.emplace(input_, toolkit_);
    return *search_;
  }
  FoundHeader find(Lookup lookup, const std::string& operand,
                   const Includer& from = {}) {
    return search().find(lookup, operand, from);
  }
  /// Where it is found, relative to all folders; "" for nowhere.
  std::string place(Lookup lookup, const std::string& operand,
                    const Includer& from = {}) {
    const FoundHeader found = find(lookup, operand, from);
    return found.path.empty() ? "" : found.path.substr(at("").size());
  }
  [[nodiscard]] Includer in(const std::string& folder) const {
    Includer from;
    from.folder = at(folder);
    return from;
  }

  /// All that are searched; returns the toolkit's.
  static std::vector<fs::path> make_folders(const fs::path& below) {
    for (const char* const folder : {"one", "two", "toolkit/cccl"})
      fs::create_directories(below / folder);
    return {below / "toolkit", below / "toolkit/cccl"};
  }

  const test::TempDir dir_;
  const std::vector<fs::path> toolkit_dirs_ = make_folders(dir_.path());
  const ToolkitFolders toolkit_{toolkit_dirs_};
  SourceKeyInput input_;

 private:
  std::optional<IncludeSearch> search_;  // made at the first question
};

TEST_F(IncludeSearchTest, AHeaderInMemoryIsBeforeEveryFile) {
  input_.memory_headers = {{"a.h", "first"}, {"a.h", "second"}};
  make("one/a.h");
  for (const Lookup lookup : {Lookup::kQuoted, Lookup::kAngled, Lookup::kNext}) {
    const FoundHeader found = find(lookup, "a.h", in("one/"));
    ASSERT_NE(found.memory, nullptr);
    EXPECT_EQ(found.memory->text, "first");
    EXPECT_FALSE(found.file);
  }
  EXPECT_EQ(find(Lookup::kAngled, "./a.h").memory, nullptr) << "spelled otherwise";
}

TEST_F(IncludeSearchTest, FoldersAreSearchedInOrderAndTheToolkitLast) {
  make("toolkit/cccl/a.h");
  make("toolkit/b.h");
  make("toolkit/cccl/b.h");
  make("two/c.h");
  make("toolkit/c.h");
  make("one/d.h");
  make("two/d.h");
  EXPECT_EQ(place(Lookup::kAngled, "a.h"), "toolkit/cccl/a.h");
  EXPECT_EQ(place(Lookup::kAngled, "b.h"), "toolkit/b.h");
  EXPECT_EQ(place(Lookup::kAngled, "c.h"), "two/c.h");
  EXPECT_EQ(place(Lookup::kAngled, "d.h"), "one/d.h");
  EXPECT_EQ(place(Lookup::kAngled, "e.h"), "");
}

TEST_F(IncludeSearchTest, OnlyAQuotedOperandIsSoughtBesideItsIncluder) {
  make("here/a.h");
  make("two/a.h");
  EXPECT_EQ(place(Lookup::kQuoted, "a.h", in("here/")), "here/a.h");
  EXPECT_EQ(place(Lookup::kAngled, "a.h", in("here/")), "two/a.h");
  EXPECT_EQ(place(Lookup::kQuoted, "a.h"), "two/a.h") << "from nowhere";
}

TEST_F(IncludeSearchTest, NoSourceIncludeLeavesThePreIncludeItsFolder) {
  make("here/a.h");
  make("two/a.h");
  for (const char* const option : {"-no-source-include", "--no-source-include"}) {
    input_.options = {option};
    IncludeSearch without(input_, toolkit_);
    EXPECT_EQ(without.find(Lookup::kQuoted, "a.h", in("here/")).path, at("two/a.h"));
    EXPECT_EQ(without.find(Lookup::kPreInclude, "a.h", in("here/")).path,
              at("here/a.h"));
  }
}

TEST_F(IncludeSearchTest, TheNextOneIsBehindTheFolderThatHadTheFirst) {
  make("one/a.h");
  make("two/a.h");
  make("toolkit/a.h");
  const FoundHeader first = find(Lookup::kAngled, "a.h");
  EXPECT_EQ(first.path, at("one/a.h"));
  const FoundHeader second = find(Lookup::kNext, "a.h", first.as_includer);
  EXPECT_EQ(second.path, at("two/a.h"));
  const FoundHeader third = find(Lookup::kNextQuoted, "a.h", second.as_includer);
  EXPECT_EQ(third.path, at("toolkit/a.h"));
  EXPECT_EQ(place(Lookup::kNext, "a.h", third.as_includer), "");
}

TEST_F(IncludeSearchTest, TheNextQuotedOneOfATextWithoutAFileIsTheFirst) {
  make("here/a.h");
  make("one/a.h");
  Includer text = in("here/");
  text.next_dir = 1;
  text.has_file = false;
  EXPECT_EQ(place(Lookup::kNextQuoted, "a.h", text), "here/a.h");
}

TEST_F(IncludeSearchTest, AnAbsoluteOperandIsNowhereElse) {
  make("one/a.h");
  EXPECT_EQ(find(Lookup::kAngled, at("one/a.h")).path, at("one/a.h"));
  EXPECT_EQ(place(Lookup::kQuoted, "/a.h", in("one/")), "");
}

TEST_F(IncludeSearchTest, ANameWithoutASuffixIsTriedWithStdhInEachFolder) {
  make("one/limits.stdh");
  make("two/limits");
  make("two/both");
  make("two/both.stdh");
  make("two/a.h.stdh");
  make("two/v1.2/limits.stdh");
  EXPECT_EQ(place(Lookup::kAngled, "limits"), "one/limits.stdh");
  EXPECT_EQ(place(Lookup::kAngled, "both"), "two/both");
  EXPECT_EQ(place(Lookup::kAngled, "a.h"), "");
  EXPECT_EQ(place(Lookup::kAngled, "v1.2/limits"), "two/v1.2/limits.stdh");
}

TEST_F(IncludeSearchTest, WhatIsNoFileIsPassedOver) {
  fs::create_directories(at("one/a.h"));
  fs::create_symlink("nowhere", at("one/b.h"));
  make("two/a.h");
  make("two/b.h");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(place(Lookup::kAngled, "a.h"), "two/a.h");
    EXPECT_EQ(place(Lookup::kAngled, "b.h"), "two/b.h");
  }
}

TEST_F(IncludeSearchTest, WhatMayNotBeReadIsPassedOver) {
  if (::geteuid() == 0)
    GTEST_SKIP() << "root may read everything";
  make("one/a.h");
  make("two/a.h");
  fs::permissions(at("one/a.h"), fs::perms::none);
  EXPECT_EQ(place(Lookup::kAngled, "a.h"), "two/a.h");
}

TEST_F(IncludeSearchTest, AHeaderOfTheToolkitIsItsTreeAndNoFile) {
  make("toolkit/cccl/cub/cub.h");
  fs::create_directory_symlink(at("toolkit/cccl"), at("alias"));
  input_.include_dirs.insert(input_.include_dirs.begin(), at("alias"));
  const FoundHeader found = find(Lookup::kAngled, "cub/cub.h");
  EXPECT_EQ(found.path, at("alias/cub/cub.h"));
  EXPECT_EQ(found.toolkit, "toolkit/cccl/cub/cub.h");
  EXPECT_FALSE(found.file);
  EXPECT_EQ(found.as_includer.folder, at("alias/cub/"));
}

TEST_F(IncludeSearchTest, EachPathIsLookedAtOnce) {
  make("two/a.h");
  EXPECT_EQ(place(Lookup::kAngled, "a.h"), "two/a.h");
  make("one/a.h");
  fs::remove(at("two/a.h"));
  EXPECT_EQ(place(Lookup::kAngled, "a.h"), "two/a.h") << "as it was";
}

TEST_F(IncludeSearchTest, EveryLookIsReportedOnceWithWhatWasThere) {
  make("two/a.h");
  std::ignore = find(Lookup::kAngled, "a.h");
  std::ignore = find(Lookup::kQuoted, "a.h");
  const HeaderLookups lookups = search().take_lookups();
  EXPECT_THAT(lookups.files,
              UnorderedElementsAre(Key(at("one/a.h")), Key(at("two/a.h"))));
  EXPECT_FALSE(lookups.files.at(at("one/a.h")));
  EXPECT_TRUE(lookups.files.at(at("two/a.h")));
  EXPECT_THAT(lookups.folders, ElementsAre(at("one/"), at("two/")));
  EXPECT_THAT(search().take_lookups().files, IsEmpty());
}

TEST_F(IncludeSearchTest, AHeaderInMemoryThatIsCalledAsAPathOnTheWayIsSaid) {
  input_.memory_headers = {{at("one/a.h"), "absolute"},
                           {at("two/b.h").substr(1), "relative to /"}};
  make("two/a.h");
  make("two/b.h");
  const FoundHeader passed = find(Lookup::kAngled, "a.h");
  EXPECT_EQ(passed.path, at("two/a.h"));
  ASSERT_NE(passed.namesake, nullptr);
  EXPECT_EQ(passed.namesake->text, "absolute");
  const FoundHeader reached = find(Lookup::kAngled, "b.h");
  ASSERT_NE(reached.namesake, nullptr);
  EXPECT_EQ(reached.namesake->text, "relative to /");
  EXPECT_EQ(find(Lookup::kAngled, "c.h").namesake, nullptr);
}

TEST_F(IncludeSearchTest, ShadowsAreFilesOfTheRequestWithTheirPlaceAmongTheToolkit) {
  input_.include_dirs = {at("one"), at("toolkit"), at("two")};
  make("one/crt/host.h");
  make("one/other.h");
  make("two/limits.stdh");
  make("two/crt/device.h");
  make("toolkit/crt/device.h");
  const std::vector<std::string_view> operands{"limits", "crt/host.h", "crt/device.h",
                                               "crt/host.h", "missing.h"};
  const auto shadows = search().find_shadows(operands);
  ASSERT_EQ(shadows.size(), 3U);
  const auto expect = [&](std::size_t i, const char* operand, const char* path,
                          std::size_t before) {
    EXPECT_EQ(shadows[i].operand, operand);
    EXPECT_EQ(shadows[i].header.path, at(path));
    EXPECT_EQ(shadows[i].toolkit_folders_before, before);
  };
  expect(0, "crt/host.h", "one/crt/host.h", 0);
  expect(1, "crt/device.h", "two/crt/device.h", 1);
  expect(2, "limits", "two/limits.stdh", 1);
}

}  // namespace
}  // namespace kiln::key
