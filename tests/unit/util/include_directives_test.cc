// What counts as an include directive, and what only looks like one.

#include "util/include_directives.h"

#include <chrono>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/is_error.h"
#include "tests/support/print_name.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using test::PrintTo;

struct Case {
  const char* name;
  std::string text;
  std::vector<std::string>
      found;  // "q:", "a:", "n:", "c:", "i:" or "N:" and the operand
};

std::vector<std::string> find(const std::string& text) {
  std::vector<std::string> found;
  const auto directives = find_directives(text);
  EXPECT_TRUE(directives) << directives.error().message;
  for (const Directive& directive : directives->list) {
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
  const Directives found = *find_directives("int \\\n i;\n/*\n*/\n#include HEADER\n");
  ASSERT_EQ(found.list.size(), 1U);
  EXPECT_EQ(found.list[0].line, 5);
}

TEST(Directives, KeepTheHeadersThatMacrosName) {
  const Directives found = *find_directives(
      "#define A \"a.h\" // x\n#define B <b.h> /* y */\n#define C(x) \"c.h\"\n"
      "#define D \"d\" \"e\"\n#define E 1\n#define F \"/p//f.h\" // x\n");
  ASSERT_EQ(found.macro_values.size(), 4U);
  EXPECT_EQ(found.macro_values[0], (Directive{Lookup::kQuoted, "a.h", 0}));
  EXPECT_EQ(found.macro_values[1], (Directive{Lookup::kAngled, "b.h", 0}));
  EXPECT_EQ(found.macro_values[2], (Directive{Lookup::kQuoted, "c.h", 0}));
  EXPECT_EQ(found.macro_values[3], (Directive{Lookup::kQuoted, "/p//f.h", 0}));
}

TEST(Directives, KeepTheMacrosThatArePartOfAPath) {
  const Directives found = *find_directives(
      "#define A cuda // x\n#define B a/A\n#define C(x) c\n#define D 1\n"
      "#define E one two\n#define F Int\n#define G \\\n  behind\n#define H\n");
  std::vector<std::pair<std::string, std::string>> macros;
  for (const auto& [name, value] : found.path_macros) macros.emplace_back(name, value);
  const decltype(macros) expected{{"A", "cuda"}, {"B", "a/A"}, {"G", "behind"}};
  EXPECT_EQ(macros, expected);
}

TEST(Directives, SayWhereTheNameOfTheirFileMayBe) {
  for (const char* text : {"x = __FILE__;", "#define A __FILE__", "assert(x);",
                           "std::source_location::current()"})
    EXPECT_TRUE(find_directives(text)->names_file) << text;
  for (const char* text : {"// __FILE__", "\"__FILE__\"", "__FILE__s", "my_assert(x)"})
    EXPECT_FALSE(find_directives(text)->names_file) << text;
}

TEST(PathMacros, AreReplacedByEachOfTheirValues) {
  const PathMacroValues macros{
      {"ROOT", {"sys/NAME"}}, {"NAME", {"cuda", "omp"}}, {"LOOP", {"a/LOOP"}}};
  EXPECT_THAT(with_path_macros("ROOT/tag.h", macros, 64),
              testing::UnorderedElementsAre("sys/cuda/tag.h", "sys/omp/tag.h"));
  EXPECT_THAT(with_path_macros("ROOTS/NAME_.h", macros, 64),
              testing::ElementsAre("ROOTS/NAME_.h"));
  EXPECT_THAT(with_path_macros("LOOP", macros, 64), testing::IsEmpty());
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

// --- the time of the build ---------------------------------------------------------

TEST(Directives, SayWhereATextNamesTheTimeOfTheBuild) {
  const std::vector<std::pair<const char*, int>> texts = {
      {"\nint t = __TIME__;", 2},       {"#define T(x) x, __TIME__", 1},
      {"#if 0\n\n__TIME__\n#endif", 3}, {"__TI\\\nME__", 2},
      {"1; \"s\" __TIME__", 1},         {"#ifdef __TIME__", 1},
      {"#include __TIME__", 1}};
  for (const auto& [text, line] : texts) {
    const Directives found = *find_directives(text);
    ASSERT_TRUE(found.build_time) << text;
    EXPECT_EQ(found.build_time->name, "__TIME__") << text;
    EXPECT_EQ(found.build_time->line, line) << text;
  }
  EXPECT_EQ(find_directives("__DATE__")->build_time->name, "__DATE__");
  EXPECT_EQ(find_directives("__TIMESTAMP__")->build_time->name, "__TIMESTAMP__");
}

TEST(Directives, TakeNoOtherTextForTheTimeOfTheBuild) {
  for (const char* const text :
       {"// __TIME__", "/* __TIME__ */", "\"__TIME__\"", "R\"(__TIME__)\"",
        "#define __TIME__ \"12:00:00\"", "my__TIME__", "__TIME__s", "__time__",
        "#include \"__TIME__\"", "'__TIME__'", "1__TIME__"})
    EXPECT_FALSE(find_directives(text)->build_time) << text;
}

// --- cost --------------------------------------------------------------------------

std::string repeated(std::string_view piece, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += piece;
  return text;
}

struct Hostile {
  const char* name;
  const char* start;
  const char* piece;
};

class CostTest : public testing::TestWithParam<Hostile> {};

TEST_P(CostTest, IsAFewLooksAtEachByteHoweverLongTheText) {
  for (const std::size_t times : {500U, 4000U}) {
    const std::string text = GetParam().start + repeated(GetParam().piece, times);
    const auto found = find_directives(text);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_LE(found->work, 12 * text.size());
    for (const Directive& directive : found->list)
      ASSERT_LE(directive.operand.size(), 1000U);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, CostTest,
    testing::Values(Hostile{"LoneAngles", "#if 0\n", "#include <\n"},
                    Hostile{"LoneQuotes", "#if 0\n", "#include \"\n"},
                    Hostile{"Computed", "#if 0\n", "#include X\n"},
                    Hostile{"ComputedInOneLine", "#if ", "__has_include(X) || "},
                    Hostile{"LoneAnglesInOneLine", "#if ", "F(< "},
                    Hostile{"LoneQuoteInOneLine", "#if ", "F(' "},
                    Hostile{"EndlessComments", "", "/* "},
                    Hostile{"EndlessCommentsInDirectives", "", "#include /*\n"},
                    Hostile{"EndlessLiterals", "", "\"\n"},
                    Hostile{"RawStrings", "", "R\"x(y)x\" "},
                    Hostile{"NoRawStrings", "", "R\"xxxxxxxxxxxxxxxxxxxx "},
                    Hostile{"Defines", "", "#define REGISTER_NAME 0x1000\n"},
                    Hostile{"DefinesOfHeaders", "", "#define H <a.h>\n"},
                    Hostile{"LineComments", "", "// x\n"},
                    Hostile{"Splices", "#include X\n", "a\\\n"},
                    Hostile{"Times", "", "__TIME__\n"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Directives, EndAtALimitThatTheyName) {
  EXPECT_THAT(
      find_directives(repeated("R\"x(\n", 100)),
      test::IsError(ErrorCode::kResourceLimit, testing::HasSubstr("64 raw string")));
  EXPECT_THAT(
      find_directives(repeated("#include\n", kMaxDirectives + 1)),
      test::IsError(ErrorCode::kResourceLimit, testing::HasSubstr("200000 #include")));
}

TEST(Directives, EndWhenTheyAreStopped) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(find_directives("int i;", stop.get_token()).error().code,
            ErrorCode::kCancelled);
}

TEST(Directives, EndInTheMiddleOfAHugeTextWhenTheyAreStopped) {
  const std::string text(32U << 20U, '+');  // some hundred milliseconds
  std::stop_source stop;
  const std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    stop.request_stop();
  });
  EXPECT_THAT(find_directives(text, stop.get_token()),
              test::IsError(ErrorCode::kCancelled));
}

}  // namespace
}  // namespace kiln
