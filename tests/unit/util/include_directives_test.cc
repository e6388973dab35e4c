// What counts as an include directive, and what only looks like one.

#include "util/include_directives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

namespace kiln {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Case {
  const char* name;
  std::string text;
  std::vector<std::string>
      found;  // "q:", "a:", "n:", "c:", "i:" or "N:" and the operand
};

void PrintTo(const Case& test, std::ostream* out) {
  *out << test.name;
}

std::vector<std::string> find(const std::string& text) {
  std::vector<std::string> found;
  for (const Directive& directive : find_directives(text).list) {
    const char kind = "qanciN"[static_cast<int>(directive.lookup)];
    found.push_back(std::string(1, kind) + ":" + directive.operand);
  }
  return found;
}

class DirectivesTest : public testing::TestWithParam<Case> {};

TEST_P(DirectivesTest, AreFoundAsTheCompilerWould) {
  EXPECT_EQ(find(GetParam().text), GetParam().found);
}

const std::vector<Case> kCases = {
    {"Nothing", "", {}},
    {"Quoted", "#include \"a.h\"\n", {"q:a.h"}},
    {"Angled", "#include <a/b.h>", {"a:a/b.h"}},
    {"NoNewlineNoEnd", "#include \"a.h", {"c:\"a.h"}},
    {"Next", "#include_next <a.h>\n#include_next \"b.h\"", {"n:a.h", "N:b.h"}},
    {"Spaced", " \t# \t include\t\"a.h\" // why", {"q:a.h"}},
    {"Tight", "#include\"a.h\"\n#include<b.h>", {"q:a.h", "a:b.h"}},
    {"CommentsBetween", "/* x */ # /* y */ include /* z */ \"a.h\"", {"q:a.h"}},
    {"BehindALongComment", "/* x\n y */ #include \"a.h\"", {"q:a.h"}},
    {"Digraph", "%:include \"a.h\"", {"q:a.h"}},
    {"NoTrigraph",
     "?"
     "?=include \"a.h\"",
     {}},
    {"Spliced", "#inc\\\nlude \"a\\\n.h\"", {"q:a.h"}},
    {"SplicedWithCarriageReturn", "#inc\\\r\nlude \"a.h\"\r\n", {"q:a.h"}},
    {"EveryBranch",
     "#if 0\n#include \"a.h\"\n#elif X\n#include \"b.h\"\n#else\n#include \"c.h\"\n"
     "#endif",
     {"q:a.h", "q:b.h", "q:c.h"}},
    {"NotInLineComment", "// #include \"a.h\"\n", {}},
    {"NotInSplicedLineComment", "// x \\\n#include \"a.h\"\n", {}},
    {"NotInBlockComment", "/*\n#include \"a.h\"\n*/", {}},
    {"NotInRawString", "auto s = R\"x(\n#include \"a.h\"\n)\" )x\";", {}},
    {"BehindARawString", "auto s = R\"(\")\";\n#include \"a.h\"", {"q:a.h"}},
    {"RawStringPrefixes", "u8R\"(\n#include \"a.h\"\n)\" LR\"(\n#include <b>\n)\"", {}},
    {"NoRawPrefix", "FOOR\"(\"\n#include \"a.h\"", {"q:a.h"}},
    {"CommentStartInString", "auto s = \"/*\";\n#include \"a.h\"", {"q:a.h"}},
    {"EscapedQuote", "auto s = \"\\\"/*\";\n#include \"a.h\"", {"q:a.h"}},
    {"QuoteCharacter", "char c = '\"';\n#include \"a.h\"", {"q:a.h"}},
    {"DigitSeparator", "int i = 1'000 /* ' */;\n#include \"a.h\"", {"q:a.h"}},
    {"ApostropheInSkippedText",
     "#if 0\nit's /* so\n#endif\n#include \"a.h\"",
     {"q:a.h"}},
    {"EndlessComment", "/* never closed\n#include \"a.h\"", {"q:a.h"}},
    {"EndlessRawString", "R\"( never closed\n#include \"a.h\"", {"q:a.h"}},
    {"NotBehindCode", "int i; #include \"a.h\"", {}},
    {"OtherDirectives", "#error \"a.h\"\n#pragma once\n#line 3 \"x.h\"\n", {}},
    {"Computed", "#include HEADER // x\n", {"c:HEADER "}},
    {"ComputedCall", "#include STR(a.h)\n", {"c:STR(a.h)"}},
    {"HasInclude",
     "#if __has_include(\"a.h\") && __has_include( <b.h> )\n#endif",
     {"q:a.h", "a:b.h"}},
    {"HasIncludeNext", "#if __has_include_next(<a.h>)", {"n:a.h"}},
    {"HasIncludeOfMacro", "#if __has_include(H)", {"i:H)"}},
    {"HasIncludeInADefine", "#define HAS __has_include(<a.h>)", {"a:a.h"}},
    {"HasIncludeThroughAMacro", "#if HAS(<a.h>) || HAS( \"b.h\")", {"a:a.h", "q:b.h"}},
    {"HasIncludeOnlyNamed", "#ifdef __has_include\n#if defined(__has_include)", {}},
    {"ComparisonIsNoHeader", "#if (A < B) && C > D\n#endif", {}},
    {"ByteOrderMarkIsNoBlank", "\xef\xbb\xbf#include \"a.h\"", {}},
};

INSTANTIATE_TEST_SUITE_P(Table, DirectivesTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Directives, SayTheLineOfAComputedIncludeAlsoBehindSplices) {
  const Directives found = find_directives("int \\\n i;\n/*\n*/\n#include HEADER\n");
  ASSERT_EQ(found.list.size(), 1U);
  EXPECT_EQ(found.list[0].line, 5);
}

TEST(Directives, KeepTheHeadersThatMacrosName) {
  const Directives found = find_directives(
      "#define A \"a.h\" // x\n#define B <b.h> /* y */\n#define C(x) \"c.h\"\n"
      "#define D \"d\" \"e\"\n#define E 1\n");
  ASSERT_EQ(found.macro_values.size(), 2U);
  EXPECT_EQ(found.macro_values[0], (Directive{Lookup::kQuoted, "a.h", 0}));
  EXPECT_EQ(found.macro_values[1], (Directive{Lookup::kAngled, "b.h", 0}));
}

TEST(Directives, SurviveEveryTruncationAndEveryByte) {
  const std::string text =
      "#include \\\n <a.h>\n/* */ R\"x()x\" '\\'' 1'0 \"\\\" #if HAS(<b>)\n"
      "#define A <c>\n#include STR(x)\n%:include_next \"q\"";
  for (std::size_t size = 0; size <= text.size(); ++size) {
    std::ignore = find_directives(text.substr(0, size));
    for (const char byte : {'"', '\'', '<', '(', '\n', '\\', '\0', '\xff'}) {
      std::string changed = text;
      if (size < changed.size())
        changed[size] = byte;
      std::ignore = find_directives(changed);
    }
  }
}

}  // namespace
}  // namespace kiln
