// Files as results, on the command line: listed, shown, carried and cleared like
// kernels.

#include <gmock/gmock.h>

#include "tests/integration/files/file_results_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/program.h"
#include "tests/support/value_of.h"

namespace kiln::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ProgramFilesTest : public FileResultsTest {
 protected:
  ProgramFilesTest() {
    kiln_.set("KILN_CACHE_DIR", config().cache_dir.native());
    files::FilesOrder with_source = order();
    with_source.sources = {"k.ttir"};
    key_ = value_of(here_.results.put(with_source, files_of({{"k.cubin", "12345"},
                                                             {"k.ttir", "module {}"}})))
               .key.hex();
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
      const auto found = there.results.get(order().fields);
      Texts texts{{"k.cubin", "12345"}};
      if (with_source)
        texts["k.ttir"] = "module {}";
      return found && *found && texts_of((*found)->given) == texts ? 0 : 1;
    });
    EXPECT_EQ(other.wait(), 0) << with_source;
  }
}

TEST_F(ProgramFilesTest, AreClearedByTheirKind) {
  EXPECT_EQ(kiln_.run({"clear", "--kind", "cubin", "--yes"}).status, 0);
  EXPECT_EQ(kiln_.json_of({"ls"})["entries"].size(), 1U);
  EXPECT_EQ(kiln_.run({"clear", "--kind", "files", "--yes"}).status, 0);
  EXPECT_EQ(kiln_.json_of({"ls"})["entries"].size(), 0U);
  EXPECT_FALSE(value_of(here_.results.get(order().fields)));
}

}  // namespace
}  // namespace kiln::test
