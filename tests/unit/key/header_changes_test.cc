// Which changes of a tree of headers a source's key must follow, and which it must not.

#include <gtest/gtest.h>

#include <functional>
#include <ostream>

#include "header_trees.h"

namespace kiln::key {
namespace {

namespace fs = std::filesystem;
using test::write;

struct Change {
  const char* name;
  std::string source;
  std::function<void(const fs::path&)> prepare;  // gets the folder of the trees
  std::function<void(const fs::path&)> change;
  bool new_key = true;
};

void PrintTo(const Change& test, std::ostream* out) {
  *out << test.name;
}

class HeaderChangeTest : public HeaderScanTest,
                         public testing::WithParamInterface<Change> {};

TEST_P(HeaderChangeTest, ChangesTheKeyExactlyIfItCanChangeTheResult) {
  input_.source = GetParam().source;
  GetParam().prepare(dir_.path());
  const Fields before = fields();
  EXPECT_EQ(fields(), before);
  GetParam().change(dir_.path());
  EXPECT_EQ(fields() != before, GetParam().new_key);
}

void nothing(const fs::path&) {}

const std::vector<Change> kChanges = {
    {"AByteThreeIncludesDeep", "#include <a.h>",
     [](const fs::path& dir) {
       write(dir / "one/a.h", "#include \"b.h\"");
       write(dir / "one/b.h", "#include <c.h>");
       write(dir / "two/c.h", "1");
     },
     [](const fs::path& dir) { write(dir / "two/c.h", "2"); }},
    {"AHeaderInADeadBranch", "#if 0\n#include <a.h>\n#endif",
     [](const fs::path& dir) { write(dir / "one/a.h", "1"); },
     [](const fs::path& dir) { write(dir / "one/a.h", "2"); }},
    {"AHeaderInAHasInclude", "#if __has_include(<a.h>)\n#endif",
     [](const fs::path& dir) { write(dir / "one/a.h", "1"); },
     [](const fs::path& dir) { write(dir / "one/a.h", "2"); }},
    {"AHeaderThatAppears", "#if __has_include(\"a.h\")\n#endif", nothing,
     [](const fs::path& dir) { write(dir / "two/a.h", ""); }},
    {"AHeaderThatAppearsInAFolderThatAppears", "#include <a.h>",
     [](const fs::path& dir) { fs::remove_all(dir / "one"); },
     [](const fs::path& dir) { write(dir / "one/a.h", ""); }},
    {"AHeaderThatAppearsForAComputedCondition",
     "#define H <a.h>\n#if __has_include(H)\n#endif", nothing,
     [](const fs::path& dir) { write(dir / "two/a.h", ""); }},
    {"AHeaderThatGoes", "#include <a.h>",
     [](const fs::path& dir) { write(dir / "one/a.h", ""); },
     [](const fs::path& dir) { fs::remove(dir / "one/a.h"); }},
    {"AShadowInAnEarlierFolder", "#include <a.h>",
     [](const fs::path& dir) { write(dir / "two/a.h", "2"); },
     [](const fs::path& dir) { write(dir / "one/a.h", "1"); }},
    {"AShadowOfTheSameContent", "#include <a.h>",
     [](const fs::path& dir) { write(dir / "two/a.h", ""); },
     [](const fs::path& dir) { write(dir / "one/a.h", ""); }, false},
    {"AShadowInTheIncludersFolder", "#include <d/a.h>",
     [](const fs::path& dir) {
       write(dir / "one/d/a.h", "#include \"b.h\"");
       write(dir / "one/b.h", "1");
     },
     [](const fs::path& dir) { write(dir / "one/d/b.h", "2"); }},
    {"AFileThatAngledIncludesDoNotSee", "#include <d/a.h>",
     [](const fs::path& dir) {
       write(dir / "one/d/a.h", "#include <b.h>");
       write(dir / "one/b.h", "1");
     },
     [](const fs::path& dir) { write(dir / "one/d/b.h", "2"); }, false},
    {"TwoHeadersOfOneNameSwapped", "#include <d/a.h>\n#include <e/a.h>",
     [](const fs::path& dir) {
       write(dir / "one/d/a.h", "#include \"b.h\"\n");
       write(dir / "one/e/a.h", "#include \"b.h\" \n");
       write(dir / "one/d/b.h", "1");
       write(dir / "one/e/b.h", "2");
     },
     [](const fs::path& dir) {
       write(dir / "one/d/b.h", "2");
       write(dir / "one/e/b.h", "1");
     }},
    {"TheNextHeaderOfAName", "#include <a.h>",
     [](const fs::path& dir) {
       write(dir / "one/a.h", "#include_next <a.h>");
       write(dir / "two/a.h", "1");
     },
     [](const fs::path& dir) { write(dir / "two/a.h", "2"); }},
    {"AnUnrelatedHeader", "#include <a.h>",
     [](const fs::path& dir) { write(dir / "one/a.h", ""); },
     [](const fs::path& dir) { write(dir / "one/b.h", ""); }, false},
    {"AFolderOfTheName", "#include <a.h>",
     [](const fs::path& dir) { write(dir / "two/a.h", ""); },
     [](const fs::path& dir) { fs::create_directory(dir / "one/a.h"); }, false},
    {"ATouchedHeader", "#include <a.h>",
     [](const fs::path& dir) { write(dir / "one/a.h", "x"); },
     [](const fs::path& dir) { write(dir / "one/a.h", "x"); }, false},
    {"TheStdhSuffixOfAName", "#include <limits>", nothing,
     [](const fs::path& dir) { write(dir / "one/limits.stdh", ""); }},
    {"ACopyInsteadOfALink", "#include <a.h>\n#include <b.h>",
     [](const fs::path& dir) {
       write(dir / "one/a.h", "#pragma once");
       fs::create_symlink("a.h", dir / "one/b.h");
     },
     [](const fs::path& dir) {
       fs::remove(dir / "one/b.h");
       write(dir / "one/b.h", "#pragma once");
     }},
    {"AHeaderOfTheToolkit", "#include <cuda.h>",
     [](const fs::path& dir) {
       write(dir / "toolkit/cuda.h", "");
       write(dir / "toolkit/other.h", "1");
     },
     [](const fs::path& dir) { write(dir / "toolkit/other.h", "2"); }},
    {"AHeaderOfCccl", "#include <cub/cub.cuh>",
     [](const fs::path& dir) { write(dir / "toolkit/cccl/cub/cub.cuh", "1"); },
     [](const fs::path& dir) { write(dir / "toolkit/cccl/cub/cub.cuh", "2"); }},
    {"TheToolkitThatCannotBeReached", "#include <a.h>",
     [](const fs::path& dir) {
       write(dir / "one/a.h", "");
       write(dir / "toolkit/cuda.h", "1");
     },
     [](const fs::path& dir) { write(dir / "toolkit/cuda.h", "2"); }, false},
    {"AShadowOfWhatTheToolkitIncludes", "#include <cuda.h>",
     [](const fs::path& dir) {
       write(dir / "toolkit/cuda.h", "#include <crt/host.h>");
       write(dir / "toolkit/crt/host.h", "");
     },
     [](const fs::path& dir) { write(dir / "one/crt/host.h", ""); }},
    {"AShadowOfWhatTheToolkitDoesNotHave", "#include <cuda.h>",
     [](const fs::path& dir) {
       write(dir / "toolkit/cuda.h", "#if __has_include(<stdint.h>)\n#endif");
     },
     [](const fs::path& dir) { write(dir / "one/stdint.h", ""); }},
    {"AShadowOfAFileThatAMacroMayName", "#include <cuda.h>",
     [](const fs::path& dir) {
       write(dir / "toolkit/cuda.h", "#include SYSTEM_HEADER");
       write(dir / "toolkit/cccl/thrust/tag.h", "");
     },
     [](const fs::path& dir) { write(dir / "one/thrust/tag.h", ""); }},
    {"ADeepByteInAShadow", "#include <cuda.h>",
     [](const fs::path& dir) {
       write(dir / "toolkit/cuda.h", "#include <stdint.h>");
       write(dir / "one/stdint.h", "#include \"inner.h\"");
       write(dir / "one/inner.h", "1");
     },
     [](const fs::path& dir) { write(dir / "one/inner.h", "2"); }},
    {"ANeighbourOfAToolkitHeader", "#include <cuda.h>",
     [](const fs::path& dir) { write(dir / "toolkit/cuda.h", ""); },
     [](const fs::path& dir) { write(dir / "one/mine.h", ""); }, false},
    {"AShadowThatOnlyAComputedIncludeSees", "#include <d/a.h>\n#include <e/b.h>",
     [](const fs::path& dir) {
       write(dir / "one/d/a.h", "#include \"conf.h\"");
       write(dir / "one/e/b.h", "#define H \"conf.h\"\n#include H");
       write(dir / "one/conf.h", "1");
     },
     [](const fs::path& dir) { write(dir / "one/e/conf.h", "2"); }},
};

INSTANTIATE_TEST_SUITE_P(Table, HeaderChangeTest, testing::ValuesIn(kChanges),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace kiln::key
