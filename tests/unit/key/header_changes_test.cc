// Which changes of a tree of headers a source's key must follow, and which it must not.

#include <cstring>
#include <utility>

#include "header_trees.h"
#include "tests/support/print_name.h"
#include "tests/support/test.h"

namespace kiln::key {
namespace {

using test::PrintTo;
using test::write;

/// Files of the trees with their texts. Null: it goes, with all that is in it; a path
/// that ends with a slash is that of a folder.
using Files = std::vector<std::pair<const char*, const char*>>;

struct Change {
  const char* name;
  const char* source;
  Files before;
  Files after;
  bool new_key;
};

class HeaderChangeTest : public HeaderScanTest,
                         public testing::WithParamInterface<Change> {
 protected:
  void write_all(const Files& files) const {
    for (const auto& [path, text] : files) {
      if (text == nullptr)
        fs::remove_all(dir_.path() / path);
      else if (path[std::strlen(path) - 1] == '/')
        fs::create_directories(dir_.path() / path);
      else
        write(dir_.path() / path, text);
    }
  }
};

TEST_P(HeaderChangeTest, ChangesTheKeyExactlyIfItCanChangeTheResult) {
  input_.source = GetParam().source;
  write_all(GetParam().before);
  const Fields before = fields();
  EXPECT_EQ(fields(), before);
  write_all(GetParam().after);
  EXPECT_EQ(fields() != before, GetParam().new_key);
}

TEST_F(HeaderScanTest, ACopyInsteadOfALinkChangesTheKey) {
  input_.source = "#include <a.h>\n#include <b.h>";
  write(one_ / "a.h", "#pragma once");
  fs::create_symlink("a.h", one_ / "b.h");
  const Fields before = fields();
  EXPECT_EQ(fields(), before);
  fs::remove(one_ / "b.h");
  write(one_ / "b.h", "#pragma once");
  EXPECT_NE(fields(), before);
}

Change change(const char* name, const char* source, Files before, Files after,
              bool new_key = true) {
  return {name, source, std::move(before), std::move(after), new_key};
}

const std::vector<Change> kChanges = {
    change("AByteThreeIncludesDeep", "#include <a.h>",
           {{"one/a.h", "#include \"b.h\""},
            {"one/b.h", "#include <c.h>"},
            {"two/c.h", "1"}},
           {{"two/c.h", "2"}}),
    change("AHeaderInADeadBranch", "#if 0\n#include <a.h>\n#endif", {{"one/a.h", "1"}},
           {{"one/a.h", "2"}}),
    change("AHeaderInAHasInclude", "#if __has_include(<a.h>)\n#endif",
           {{"one/a.h", "1"}}, {{"one/a.h", "2"}}),
    change("AHeaderThatAppears", "#if __has_include(\"a.h\")\n#endif", {},
           {{"two/a.h", ""}}),
    change("AHeaderThatAppearsInAFolderThatAppears", "#include <a.h>",
           {{"one", nullptr}}, {{"one/a.h", ""}}),
    change("AHeaderThatAppearsForAComputedCondition",
           "#define H <a.h>\n#if __has_include(H)\n#endif", {}, {{"two/a.h", ""}}),
    change("AHeaderThatGoes", "#include <a.h>", {{"one/a.h", ""}},
           {{"one/a.h", nullptr}}),
    change("AShadowInAnEarlierFolder", "#include <a.h>", {{"two/a.h", "2"}},
           {{"one/a.h", "1"}}),
    change("AShadowOfTheSameContent", "#include <a.h>", {{"two/a.h", ""}},
           {{"one/a.h", ""}}, false),
    change("AShadowInTheIncludersFolder", "#include <d/a.h>",
           {{"one/d/a.h", "#include \"b.h\""}, {"one/b.h", "1"}}, {{"one/d/b.h", "2"}}),
    change("AFileThatAngledIncludesDoNotSee", "#include <d/a.h>",
           {{"one/d/a.h", "#include <b.h>"}, {"one/b.h", "1"}}, {{"one/d/b.h", "2"}},
           false),
    change("TwoHeadersOfOneNameSwapped", "#include <d/a.h>\n#include <e/a.h>",
           {{"one/d/a.h", "#include \"b.h\"\n"},
            {"one/e/a.h", "#include \"b.h\" \n"},
            {"one/d/b.h", "1"},
            {"one/e/b.h", "2"}},
           {{"one/d/b.h", "2"}, {"one/e/b.h", "1"}}),
    change("TheNextHeaderOfAName", "#include <a.h>",
           {{"one/a.h", "#include_next <a.h>"}, {"two/a.h", "1"}}, {{"two/a.h", "2"}}),
    change("AnUnrelatedHeader", "#include <a.h>", {{"one/a.h", ""}}, {{"one/b.h", ""}},
           false),
    change("AFolderOfTheName", "#include <a.h>", {{"two/a.h", ""}}, {{"one/a.h/", ""}},
           false),
    change("ATouchedHeader", "#include <a.h>", {{"one/a.h", "x"}}, {{"one/a.h", "x"}},
           false),
    change("TheStdhSuffixOfAName", "#include <limits>", {}, {{"one/limits.stdh", ""}}),
    change("AHeaderOfTheToolkit", "#include <cuda.h>",
           {{"toolkit/cuda.h", ""}, {"toolkit/other.h", "1"}},
           {{"toolkit/other.h", "2"}}),
    change("AHeaderOfCccl", "#include <cub/cub.cuh>",
           {{"toolkit/cccl/cub/cub.cuh", "1"}}, {{"toolkit/cccl/cub/cub.cuh", "2"}}),
    change("TheToolkitThatCannotBeReached", "#include <a.h>",
           {{"one/a.h", ""}, {"toolkit/cuda.h", "1"}}, {{"toolkit/cuda.h", "2"}},
           false),
    change("AShadowOfWhatTheToolkitIncludes", "#include <cuda.h>",
           {{"toolkit/cuda.h", "#include <crt/host.h>"}, {"toolkit/crt/host.h", ""}},
           {{"one/crt/host.h", ""}}),
    change("AShadowOfWhatTheToolkitDoesNotHave", "#include <cuda.h>",
           {{"toolkit/cuda.h", "#if __has_include(<stdint.h>)\n#endif"}},
           {{"one/stdint.h", ""}}),
    change("AShadowOfAFileThatAMacroMayName", "#include <cuda.h>",
           {{"toolkit/cuda.h", "#include SYSTEM_HEADER"},
            {"toolkit/cccl/thrust/tag.h", ""}},
           {{"one/thrust/tag.h", ""}}),
    change("ADeepByteInAShadow", "#include <cuda.h>",
           {{"toolkit/cuda.h", "#include <stdint.h>"},
            {"one/stdint.h", "#include \"inner.h\""},
            {"one/inner.h", "1"}},
           {{"one/inner.h", "2"}}),
    change("ANeighbourOfAToolkitHeader", "#include <cuda.h>", {{"toolkit/cuda.h", ""}},
           {{"one/mine.h", ""}}, false),
    change("AShadowThatOnlyAComputedIncludeSees", "#include <d/a.h>\n#include <e/b.h>",
           {{"one/d/a.h", "#include \"conf.h\""},
            {"one/e/b.h", "#define H \"conf.h\"\n#include H"},
            {"one/conf.h", "1"}},
           {{"one/e/conf.h", "2"}}),
};

INSTANTIATE_TEST_SUITE_P(Table, HeaderChangeTest, testing::ValuesIn(kChanges),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace kiln::key
