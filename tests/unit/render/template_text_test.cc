#include "render/template_text.h"

#include <algorithm>
#include <string>

#include "tests/support/test.h"

namespace kiln::render {
namespace {

const TextNames& names() {
  static const auto* const known = new TextNames{{"dtype", NameKind::kValue},
                                                 {"n", NameKind::kValue},
                                                 {"on", NameKind::kBoolean},
                                                 {"off", NameKind::kBoolean}};
  return *known;
}

std::string error(std::string_view text) {
  const auto parsed = TemplateText::parse(text, "k.cu.mustache");
  if (!parsed)
    return parsed.error().message;
  const auto checked = parsed->check(names());
  return checked ? "" : checked.error().message;
}

std::string rendered(std::string_view text) {
  EXPECT_EQ(error(text), "");
  const auto parsed = TemplateText::parse(text, "k.cu.mustache");
  const auto out =
      parsed->render({{"dtype", "bf16"}, {"n", "4"}, {"on", "true"}, {"off", "false"}});
  EXPECT_TRUE(out) << out.error().message;
  return out.value_or("");
}

TEST(TemplateText, ValuesAndSectionsAreFilledIn) {
  EXPECT_EQ(rendered("vector<<%dtype%>> v[<%n%>]; <% n %>"), "vector<bf16> v[4]; 4");
  EXPECT_EQ(rendered("a<%#on%>b<%/on%><%^on%>c<%/on%>d"), "abd");
  EXPECT_EQ(rendered("a<%#off%>b<%/off%><%^off%>c<%/off%>d"), "acd");
  EXPECT_EQ(rendered("<%#on%><%#off%>x<%/off%><%^off%>y<%n%><%/off%><%/on%>"), "y4");
  EXPECT_EQ(rendered("<%on%> <%off%>"), "true false");
  EXPECT_EQ(rendered("a<%!note%>b"), "ab");
  EXPECT_EQ(rendered(""), "");
}

TEST(TemplateText, NothingElseInTheTextIsTouched) {
  const std::string text =
      "if (a < b && c > d) {{ x = \"<&amp;>\"; }} {{n}} {{{n}}} {{=| |=}} a%b % > < %\n"
      "\t  \n\n  trailing  \r\n\\ \x01 \xff é \"'`$";
  EXPECT_EQ(rendered(text), text);
}

TEST(TemplateText, ValuesAreNotEscapedNorReadAsTags) {
  const auto parsed = TemplateText::parse("<%dtype%>|<%n%>", "k");
  EXPECT_EQ(*parsed->render({{"dtype", "a<b>&\"'"}, {"n", "<%dtype%>{{n}}"}}),
            "a<b>&\"'|<%dtype%>{{n}}");
}

TEST(TemplateText, ALineKeepsItsNumber) {
  const std::string text =
      "1\n<%#on%>\n3\n<%/on%>\n<%#off%>\n6\n<%#on%>\n8\n<%/on%>\n10\n<%/off%>\nlast";
  const std::string out = rendered(text);
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'),
            std::count(text.begin(), text.end(), '\n'));
  EXPECT_EQ(out, "1\n\n3\n\n\n\n\n\n\n\n\nlast");
}

TEST(TemplateText, CarriageReturnsStay) {
  EXPECT_EQ(rendered("<%#on%>\r\na\r\n<%/on%>\r\n"), "\r\na\r\n\r\n");
}

TEST(TemplateText, EveryBadTagIsAnErrorWithItsLine) {
  for (const char* tag : {"printf(\"<%d%\");",
                          "<%",
                          "<%%>",
                          "<%#%>",
                          "<%-n%>",
                          "<%=| |=%>",
                          "<%>n%>",
                          "<%&n%>",
                          "<%{n}%>",
                          "<%n",
                          "<%n\n%>",
                          "<%n.m%>",
                          "<%1n%>",
                          "<%n m%>",
                          "<%# on",
                          "<%/%>",
                          "<%!two words%>",
                          "<%.%>",
                          "<% %>",
                          "<<%",
                          "<%#\non%>"}) {
    EXPECT_THAT(error(std::string("a\nb\n") + tag), StartsWith("k.cu.mustache:3: "))
        << tag;
  }
  EXPECT_THAT(error("a\nb %> c"), StartsWith("k.cu.mustache:2: '%>' without"));
  EXPECT_THAT(error("<%n%>%>"), StartsWith("k.cu.mustache:1: '%>' without"));
  EXPECT_THAT(error("<%" + std::string(100, 'a') + "%>"), HasSubstr("begins no tag"));
}

TEST(TemplateText, APrintfIsNeverSwallowed) {
  EXPECT_THAT(error("x\nprintf(\"<%d>\", a); y <%n%>"),
              StartsWith("k.cu.mustache:2: '<%' that begins no tag"));
  EXPECT_THAT(error("printf(\"<%d%>\");"),
              StartsWith("k.cu.mustache:1: unknown name 'd'"));
}

TEST(TemplateText, AnUnknownNameIsAnErrorAlsoWhereItIsNotKept) {
  EXPECT_EQ(error("\n<%dtyep%>"),
            "k.cu.mustache:2: unknown name 'dtyep' in a tag, did you mean 'dtype'?");
  EXPECT_THAT(error("<%#off%>\n\n<%gone%><%/off%>"),
              StartsWith("k.cu.mustache:3: unknown name 'gone'"));
  EXPECT_THAT(error("<%#gone%><%/gone%>"), HasSubstr("unknown name 'gone'"));
}

TEST(TemplateText, ASectionNeedsABoolean) {
  EXPECT_THAT(error("<%#dtype%><%/dtype%>"), HasSubstr("not a boolean"));
  EXPECT_THAT(error("<%^n%><%/n%>"), HasSubstr("not a boolean"));
}

TEST(TemplateText, SectionsMustBalance) {
  EXPECT_EQ(error("a\n<%#on%>\n"), "k.cu.mustache:2: section 'on' is never closed");
  EXPECT_EQ(error("a\n<%/on%>\n"), "k.cu.mustache:2: '<%/on%>' closes no section");
  EXPECT_EQ(error("<%#on%>\n<%^off%>\n<%/on%><%/off%>"),
            "k.cu.mustache:3: '<%/on%>' where section 'off' of line 2 is open");
}

TEST(TemplateText, NestingIsBounded) {
  const auto nested = [](std::size_t depth) {
    std::string text;
    for (std::size_t i = 0; i < depth; ++i) text += "<%#on%>\n";
    text += "x";
    for (std::size_t i = 0; i < depth; ++i) text += "\n<%/on%>";
    return text;
  };
  EXPECT_THAT(rendered(nested(kMaxSectionDepth)), HasSubstr("x"));
  EXPECT_THAT(error(nested(kMaxSectionDepth + 1)),
              StartsWith("k.cu.mustache:33: sections nested over"));
  EXPECT_THAT(error(nested(10000)), HasSubstr("nested over"));
}

TEST(TemplateText, SizeIsBoundedAndTheLargestRenders) {
  EXPECT_THAT(error(std::string(kMaxTextBytes + 1, ' ')), HasSubstr("over the limit"));
  std::string large;
  while (large.size() + 16 < kMaxTextBytes) large += " <%n%> \n";
  EXPECT_EQ(rendered(large).size(), large.size() / 8 * 4);
  const std::string blanks(kMaxTextBytes, ' ');
  EXPECT_EQ(rendered(blanks), blanks);
}

TEST(TemplateText, ANulIsAnErrorWithItsLine) {
  EXPECT_EQ(error(std::string_view("a\nb\0c", 5)), "k.cu.mustache:2: a NUL byte");
}

TEST(TemplateText, ATagInAnIncludeLineIsAnError) {
  EXPECT_THAT(error("\n # include \"<%dtype%>.h\"\n"),
              StartsWith("k.cu.mustache:2: a tag in an #include line"));
  EXPECT_EQ(error("<%#on%>\n#include <a.h>\n<%/on%>"), "");
}

TEST(TemplateText, EveryDirectiveThatAsksForAHeaderIsSeen) {
  for (const char* text :
       {"\t#\tinclude <a>", "%:include <a>", "#inc\\\nlude <a>", "/* */ #include <a>",
        "#if __has_include(<a>)\n#endif", "#if X\n#elif __has_include(A)\n#endif",
        "#define HAS(x) __has_include(x)", "int t = __TIME__;",
        "<%#on%>\n#include_next <a>\n<%/on%>"})
    EXPECT_TRUE(has_include(text)) << text;
  for (const char* text :
       {"", "// #include <a>", "/*\n#include <a>\n*/",
        "auto s = \"__has_include(<a>)\";", "int include;", "// __TIME__"})
    EXPECT_FALSE(has_include(text)) << text;
}

TEST(TemplateText, EqualValuesGiveEqualBytes) {
  const std::string text = "<%#on%><%n%>\n<%/on%><%dtype%>";
  EXPECT_EQ(rendered(text), rendered(text));
}

}  // namespace
}  // namespace kiln::render
