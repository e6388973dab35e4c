// Files as files, on the command line: listed, shown, carried and cleared like
// kernels.

#include "tests/integration/files/file_cache_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/program.h"
#include "tests/support/sample_object.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"

namespace kiln::test {
namespace {

/// All below `folder`.
Texts texts_in(const fs::path& folder) {
  CachedFiles all{.key = "", .folder = folder, .names = {}};
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file())
      all.names.push_back(entry.path().lexically_relative(folder));
  }
  return texts_of(all);
}

bool is_executable(const fs::path& file) {
  return (fs::status(file).permissions() & fs::perms::owner_exec) != fs::perms::none;
}

class ProgramFilesTest : public FileCacheTest {
 protected:
  ProgramFilesTest() {
    kiln_.set("KILN_CACHE_DIR", config().cache_dir.native());
    FileRequest with_source = request();
    with_source.sources = {"k.ttir"};
    key_ = value_of(here_.files.put(with_source, files_of({{"k.cubin", "12345"},
                                                           {"k.ttir", "module {}"}})))
               .key;
    here_.service->cache().flush(std::chrono::seconds(10));
  }

  KilnProgram kiln_;
  std::string key_;
};

TEST_F(ProgramFilesTest, AreListedByTheirKindAndShownByName) {
  EXPECT_THAT(kiln_.run({"ls"}).out, AllOf(HasSubstr("test_kernel"), HasSubstr("sm_90"),
                                           HasSubstr("cc-12"), HasSubstr("files")));
  const auto listed = kiln_.json_of({"ls", "--kind", "files"})["entries"];
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0]["key"], key_);
  EXPECT_EQ(listed[0]["kind"], "files");
  EXPECT_EQ(listed[0]["name"], "test_kernel");
  EXPECT_EQ(
      kiln_.json_of({"ls", "--kind", "cubin", "--kind", "plan"})["entries"].size(), 0U);
  const auto wrong = kiln_.run({"ls", "--kind", "file"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("--kind"), HasSubstr("files")));

  EXPECT_THAT(kiln_.run({"show", key_}).out,
              AllOf(HasSubstr("k.cubin (5 bytes)"), HasSubstr("k.ttir (9 bytes)"),
                    Not(HasSubstr("registers"))));
  for (const std::string text : {"log", "ptx"}) {
    const auto shown = kiln_.run({"show", key_, "--" + text});
    EXPECT_EQ(shown.status, 0);
    EXPECT_EQ(shown.out + shown.err, "the entry has files, and no " + text + "\n");
  }
  const auto files = kiln_.json_of({"show", key_})["files"];
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0]["name"], "k.cubin");
  EXPECT_EQ(files[1]["source"], true);
  EXPECT_EQ(kiln_.json_of({"verify"})["corrupt"].size(), 0U);
}

TEST_F(ProgramFilesTest, TravelInPacksWithoutTheirSource) {
  for (const bool with_source : {false, true}) {
    const std::string pack =
        (temp_.path() / (with_source ? "with.kpack" : "p.kpack")).native();
    KilnProgram::Arguments words{"pack", "-o", pack};
    if (with_source)
      words.emplace_back("--with-source");
    ASSERT_EQ(kiln_.run(words).status, 0);
    KilnProgram node;
    const auto unpacked = node.run({"unpack", pack});
    ASSERT_EQ(unpacked.status, 0) << unpacked.err;
    ChildProcess other([&] {
      Opened there(service_config(node.cache_dir()));
      const auto found = there.files.get(request().fields);
      Texts texts{{"k.cubin", "12345"}};
      if (with_source)
        texts["k.ttir"] = "module {}";
      return found && *found && texts_of(**found) == texts ? 0 : 1;
    });
    EXPECT_EQ(other.wait(), 0) << with_source;
  }
}

TEST_F(ProgramFilesTest, AreExtractedToANewFolder) {
  FileRequest of_program = request("2");
  of_program.sources = {"src/main.c"};
  const std::string tree =
      value_of(here_.files.put(of_program,
                               {{"bin/main", as_bytes(std::string_view("#!")), true},
                                {"lib/a.so", as_bytes(std::string_view("so"))},
                                {"src/main.c", as_bytes(std::string_view("int"))}}))
          .key;
  const Texts wanted{{"bin/main", "#!"}, {"lib/a.so", "so"}, {"src/main.c", "int"}};
  fs::create_directory(kiln_.folder() / "empty");
  for (const char* name : {"new", "slash/", "empty"}) {
    const auto extracted = kiln_.run({"show", tree, "--extract", name});
    ASSERT_EQ(extracted.status, 0) << extracted.text();
    EXPECT_EQ(extracted.out + extracted.err, "");
    const fs::path folder = kiln_.folder() / name;
    EXPECT_EQ(texts_in(folder), wanted) << name;
    EXPECT_TRUE(is_executable(folder / "bin/main"));
    EXPECT_FALSE(is_executable(folder / "lib/a.so"));
    EXPECT_FALSE(is_executable(folder / "src/main.c"));
    std::ofstream(folder / "lib/a.so") << "the user's";  // may change it
    EXPECT_EQ(texts_in(folder)["lib/a.so"], "the user's");
  }
}

TEST_F(ProgramFilesTest, AreNotExtractedOverWhatIsThere) {
  const fs::path full = kiln_.folder() / "full";
  fs::create_directory(full);
  kiln_.write("full/mine", "1");
  kiln_.write("file", "");
  fs::create_symlink("nowhere", kiln_.folder() / "link");
  for (const char* name : {"full", "file", "link"}) {
    const auto refused = kiln_.run({"show", key_, "--extract", name});
    EXPECT_EQ(refused.status, 2) << name;
    EXPECT_THAT(refused.err, AllOf(HasSubstr(name), HasSubstr("not an empty folder")));
  }
  EXPECT_EQ(texts_in(full), (Texts{{"mine", "1"}}));
  EXPECT_FALSE(fs::exists(kiln_.folder() / "nowhere"));
  const auto nowhere = kiln_.run({"show", key_, "--extract", "no/folder"});
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("there is no folder no"));
  const auto piped = kiln_.run({"show", key_, "--extract", "-"});
  EXPECT_EQ(piped.status, 2);
  EXPECT_EQ(piped.out, "");
  EXPECT_THAT(piped.err, HasSubstr("go to a folder"));
}

TEST_F(ProgramFilesTest, AFailedExtractionLeavesNoFolder) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's run-time ends where no file can be written";
#endif
  const auto failed = kiln_.run_in_shell("(ulimit -f 0; kiln show " + key_ +
                                         " --extract new 2>&1) | cat");
  EXPECT_THAT(failed.out, HasSubstr("k.cubin"));
  EXPECT_FALSE(fs::exists(kiln_.folder() / "new"));
}

TEST_F(ProgramFilesTest, AreCountedByKind) {
  const auto alone = kiln_.json_of({"stats"});
  EXPECT_EQ(alone["kinds"].size(), 1U);
  EXPECT_EQ(alone["kinds"]["files"]["entries"], 1);
  EXPECT_EQ(alone["kinds"]["files"]["bytes"], alone["bytes"]);
  EXPECT_THAT(kiln_.run({"stats"}).out, Not(HasSubstr("files: ")));

  SampleObject plan(1, "a plan");
  plan->kind = cache::Kind::kPlan;
  cache::CacheOptions unchecked;
  unchecked.root = config().cache_dir;
  ASSERT_EQ(cache::Cache::open(unchecked)->publish(*plan).outcome,
            cache::Published::kStored);
  const auto both = kiln_.json_of({"stats"});
  EXPECT_EQ(both["entries"], 2);
  EXPECT_EQ(both["kinds"].size(), 2U);
  EXPECT_EQ(both["kinds"]["plan"]["entries"], 1);
  EXPECT_EQ(both["kinds"]["files"], alone["kinds"]["files"]);
  EXPECT_THAT(kiln_.run({"stats"}).out,
              AllOf(HasSubstr("\nplan: 1 entry, "), HasSubstr("\nfiles: 1 entry, ")));
}

TEST_F(ProgramFilesTest, AreClearedByTheirKind) {
  EXPECT_EQ(kiln_.run({"clear", "--kind", "cubin", "--yes"}).status, 0);
  EXPECT_EQ(kiln_.json_of({"ls"})["entries"].size(), 1U);
  EXPECT_EQ(kiln_.run({"clear", "--kind", "files", "--yes"}).status, 0);
  EXPECT_EQ(kiln_.json_of({"ls"})["entries"].size(), 0U);
  EXPECT_FALSE(value_of(here_.files.get(request().fields)));
}

}  // namespace
}  // namespace kiln::test
