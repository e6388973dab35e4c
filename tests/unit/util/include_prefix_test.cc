// Where the part of a source ends that a precompiled header stands for.

#include "util/include_prefix.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/print_name.h"

namespace kiln {
namespace {

using test::PrintTo;

struct PrefixCase {
  const char* name;
  std::string prefix;
  std::string rest;
};

class IncludePrefixTest : public testing::TestWithParam<PrefixCase> {};

TEST_P(IncludePrefixTest, EndsBehindTheLastIncludeOfTheBeginning) {
  const auto& [name, prefix, rest] = GetParam();
  EXPECT_EQ(include_prefix(prefix + rest), prefix);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, IncludePrefixTest,
    testing::Values(
        PrefixCase{"nothing", "", ""},
        PrefixCase{"no include", "", "#define A\nint x;"},
        PrefixCase{"one", "#include <a.h>\n", "int x;\n#include <b.h>\n"},
        PrefixCase{"no newline at the end", "#include <a.h>", ""},
        PrefixCase{"what is defined before counts", "#define A 1\n#include \"a.h\"\n",
                   "#define B 2\n__global__ void k() {}\n"},
        PrefixCase{"comments and blank lines",
                   "// x\n/* y\n */\n\n # include <a.h> // z\n", "\n// w\nint x;"},
        PrefixCase{"a comment over lines in a directive",
                   "#define A /*\n*/ 1\n#include <a.h>\n", "int x;"},
        PrefixCase{"a splice",
                   "#define A \\\n  1\n#inc\\\nlude <b.h>\n#include <a.h>\n", "int x;"},
        PrefixCase{"two slashes in quotes", "#include \"x//y\"\n", "int x;"},
        PrefixCase{"a condition as a whole",
                   "#if A\n#include <a.h>\n#else\n#include <b.h>\n#endif\n", "int x;"},
        PrefixCase{"not a part of a condition", "#include <a.h>\n",
                   "#ifdef A\n#include <b.h>\nint x;\n#endif\n"},
        PrefixCase{"a comment without an end", "#include <a.h>\n", "/* int x;"},
        PrefixCase{"a namespace ends it", "", "namespace a {\n#include <a.h>\n}\n"}));

}  // namespace
}  // namespace kiln
