#include "request/manifest.h"

#include <random>
#include <string>

#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/template_family.h"
#include "tests/support/test.h"

namespace kiln::request {
namespace {

/// The first error of a manifest.
std::string error(std::string_view text) {
  const auto lines = parse_manifest(text, "m.jsonl");
  if (!lines)
    return lines.error().message;
  for (const ManifestLine& line : *lines) {
    if (!line)
      return line.error().message;
  }
  return "";
}

/// The requests of a manifest without a bad line.
std::vector<ManifestEntry> entries_of(std::string_view text) {
  EXPECT_EQ(error(text), "");
  std::vector<ManifestEntry> entries;
  const auto lines = parse_manifest(text, "m.jsonl");
  for (const ManifestLine& line : lines.value()) entries.push_back(line.value());
  return entries;
}

TEST(Manifest, TemplateLinesAreRead) {
  const auto entries = entries_of(
      "{\"template\":\"a\",\"params\":{\"dtype\":\"bf16\",\"n\":128,\"on\":true},"
      "\"arch\":\"9.0a\"}\n\n  \t\r\n{\"template\":\"b\"}\r\n{\"template\":\"c\"}");
  ASSERT_EQ(entries.size(), 3U);
  const ManifestEntry& first = entries.front();
  EXPECT_EQ(first.request.name(), "a");
  EXPECT_EQ(first.request.parameters(),
            (Parameters{{"dtype", "bf16"}, {"n", "128"}, {"on", "true"}}));
  EXPECT_EQ(device::arch_name(*first.architecture), "9.0a");
  EXPECT_EQ(entries[1].line, 4U);
  EXPECT_EQ(entries[2].line, 5U);
  EXPECT_FALSE(entries[2].architecture);
}

TEST(Manifest, SourceLinesAreRead) {
  const auto entries = entries_of(
      R"({"source":"s\n","headers":{"a.h":"x"},"options":["-G","-DA"],"names":["f<1>"]})");
  const SourceOptions& source = entries.front().request.source();
  EXPECT_EQ(source.source, "s\n");
  EXPECT_EQ(source.file_name, "m.jsonl:1/kernel.cu");
  EXPECT_EQ(source.headers.at("a.h"), "x");
  EXPECT_THAT(source.options, ElementsAre("-G", "-DA"));
  EXPECT_THAT(source.name_expressions, ElementsAre("f<1>"));
}

TEST(Manifest, ASourceKeepsTheNameThatTheCompilerSees) {
  const Request request =
      Request::from_source({.source = "s", .file_name = "/a/attention.cu"});
  const std::string line = manifest_line(request, std::nullopt).value();
  EXPECT_THAT(line, HasSubstr(R"("file":"attention.cu")"));
  const auto entries = entries_of(line);
  EXPECT_EQ(entries.front().request.name(), "m.jsonl:1/attention.cu");
  EXPECT_THAT(error(R"({"source":"","file":1})"), HasSubstr("'file' must be a string"));
}

TEST(Manifest, IncludeFoldersAndDefinesHaveKeysOfTheirOwn) {
  const auto entries = entries_of(
      R"({"source":"s","include_dirs":["/a","b"],"defines":["N=1"],"options":["-G"]})");
  const SourceOptions& source = entries.front().request.source();
  EXPECT_THAT(source.include_dirs, ElementsAre("/a", "b"));
  EXPECT_THAT(source.defines, ElementsAre("N=1"));
  EXPECT_THAT(source.options, ElementsAre("-G"));
  EXPECT_THAT(error(R"({"source":"","define":[]})"),
              HasSubstr("did you mean 'defines'"));
  EXPECT_THAT(error(R"({"source":"","include_dirs":"a"})"),
              HasSubstr("must be a list"));
}

TEST(Manifest, TheLanguageIsAFieldOrAnOptionAndComesFirstAsOne) {
  const auto entries = entries_of(R"({"source":"s","std":"c++20","options":["-G"]})"
                                  "\n"
                                  R"({"source":"s","options":["-G","--std=c++20"]})");
  EXPECT_THAT(entries[0].request.source().options, ElementsAre("--std=c++20", "-G"));
  EXPECT_THAT(entries[1].request.source().options, ElementsAre("-G", "--std=c++20"));
  EXPECT_THAT(manifest_line(entries[0].request, std::nullopt).value(),
              HasSubstr(R"("options":["-G"],"source":"s","std":"c++20")"));
  EXPECT_THAT(manifest_line(entries[1].request, std::nullopt).value(),
              HasSubstr(R"("options":["-G","--std=c++20"])"));
  EXPECT_THAT(error(R"({"source":"","std":20})"), HasSubstr("'std' must be a string"));
}

TEST(Manifest, ARequestAsNvrtcNamesItsNvrtcAndItsProgram) {
  const Request request = Request::from_source({.source = "s",
                                                .file_name = "a/k.cu",
                                                .options = {"--std=c++14", "-Iinc"},
                                                .target = "default",
                                                .as_nvrtc = true,
                                                .working_dir = "/job",
                                                .toolchain = "13.0 65be+5e6f /n"});
  const std::string line = manifest_line(request, std::nullopt, "train.py").value();
  EXPECT_THAT(line, HasSubstr(R"("default_arch":true)"));
  EXPECT_THAT(line, HasSubstr(R"("program":"train.py")"));
  EXPECT_THAT(line, HasSubstr(R"("toolchain":"13.0 65be+5e6f /n")"));
  const Request read = entries_of(line).front().request;
  EXPECT_EQ(read.source().target, "default");
  EXPECT_EQ(read.source().toolchain, "13.0 65be+5e6f /n");
  EXPECT_EQ(manifest_line(read, std::nullopt, "train.py").value(), line);
  for (const std::string key : {"program", "toolchain"})
    EXPECT_THAT(error("{\"source\":\"\",\"" + key + "\":1}"),
                HasSubstr("'" + key + "' must be a string"));
  EXPECT_THAT(error(R"({"source":"","default_arch":1})"),
              HasSubstr("must be true or false"));
}

TEST(Manifest, EveryBadLineIsToldAndTheGoodOnesAreRead) {
  const auto lines = parse_manifest(
      "x\n{\"template\":\"a\"}\n\n{\"sorce\":\"\"}\n{\"template\":\"b\"}\n"
      "{\"source\":\"\",\"include_dir\":[]}",
      "m.jsonl");
  ASSERT_TRUE(lines) << lines.error().message;
  ASSERT_EQ(lines->size(), 5U);
  EXPECT_THAT(lines->at(0).error().message, StartsWith("m.jsonl:1: not JSON"));
  EXPECT_EQ(lines->at(1)->line, 2U);
  EXPECT_EQ(lines->at(2).error().message,
            "m.jsonl:4: unknown key 'sorce', did you mean 'source'?");
  EXPECT_EQ(lines->at(3)->request.name(), "b");
  EXPECT_EQ(lines->at(4).error().message,
            "m.jsonl:6: unknown key 'include_dir', did you mean 'include_dirs'?");
}

TEST(Manifest, EveryBadLineIsAnErrorWithItsNumber) {
  const std::vector<std::pair<const char*, const char*>> bad{
      {"x", "not JSON"},
      {"{", "not JSON"},
      {"{}{}", "not JSON"},
      {"[]", "one JSON object"},
      {"null", "one JSON object"},
      {"\"template\"", "one JSON object"},
      {"{}", "neither 'template' nor 'source'"},
      {"{\"arch\":\"9.0\"}", "neither 'template' nor 'source'"},
      {"{\"tempalte\":\"a\"}", "unknown key 'tempalte', did you mean 'template'?"},
      {"{\"template\":\"a\",\"parms\":{}}",
       "unknown key 'parms', did you mean 'params'?"},
      {"{\"template\":\"a\",\"options\":[]}", "unknown key 'options'"},
      {"{\"source\":\"a\",\"params\":{}}", "unknown key 'params'"},
      {"{\"source\":\"a\",\"template\":\"b\"}", "exclude each other"},
      {"{\"template\":1}", "'template' must be a string"},
      {"{\"template\":\"\"}", "'template' is empty"},
      {"{\"template\":\"a\",\"params\":[]}", "'params' must be an object"},
      {"{\"template\":\"a\",\"params\":null}", "'params' must be an object"},
      {"{\"template\":\"a\",\"params\":{\"p\":1.5}}", "'params.p' must be a string"},
      {"{\"template\":\"a\",\"params\":{\"p\":{}}}", "'params.p' must be a string"},
      {"{\"template\":\"a\",\"template\":\"b\"}", "the key 'template' is given twice"},
      {"{\"template\":\"a\",\"params\":{\"p\":\"1\",\"p\":\"2\"}}",
       "'p' is given twice"},
      {"{\"template\":\"a\",\"arch\":90}", "'arch' must be a string"},
      {"{\"template\":\"a\",\"arch\":\"nine\"}", "'arch': "},
      {"{\"template\":\"a\",\"arch\":\"native\"}", "'arch': "},
      {"{\"source\":1}", "'source' must be a string"},
      {"{\"source\":\"\",\"headers\":[]}", "'headers' must be an object"},
      {"{\"source\":\"\",\"headers\":{\"a\":1}}", "'headers.a' must be a string"},
      {"{\"source\":\"\",\"options\":\"-G\"}", "'options' must be a list"},
      {"{\"source\":\"\",\"options\":[1]}", "'options' must be a string"},
      {"{\"source\":\"\",\"names\":{}}", "'names' must be a list"},
      {"{\"source\":\"\xff\"}", "not JSON"},
      {"{\"source\":\"\",\"sources\":[]}", "'source' and 'sources' exclude each other"},
      {"{\"template\":\"a\",\"link_files\":[]}", "unknown key 'link_files'"},
      {"{\"source\":\"\",\"link_file\":[]}", "did you mean 'link_files'?"},
      {"{\"source\":\"\",\"link_files\":\"a\"}", "'link_files' must be a list"},
      {"{\"source\":\"\",\"link_options\":[1]}", "'link_options' must be a string"},
      {"{\"sources\":{}}", "'sources' must be a list of objects"},
      {"{\"sources\":[]}", "'sources' must be a list of objects"},
      {"{\"sources\":[\"x\"]}", "'sources[0]' must be an object with a 'source'"},
      {"{\"sources\":[{\"source\":\"\"},{}]}",
       "'sources[1]' must be an object with a 'source'"},
      {"{\"sources\":[{\"source\":\"\",\"arch\":\"9.0\"}]}",
       "sources[0]: unknown key 'arch'"},
      {"{\"sources\":[{\"source\":\"\"},{\"source\":\"\",\"name\":[]}]}",
       "sources[1]: unknown key 'name', did you mean 'names'?"},
      {"{\"sources\":[{\"source\":\"\",\"headers\":{\"a\":1}}]}",
       "'sources[0].headers.a' must be a string"},
      {"{\"sources\":[{\"source\":\"\"}],\"options\":[]}", "unknown key 'options'"},
  };
  for (const auto& [line, reason] : bad) {
    const std::string message =
        error(std::string("{\"template\":\"a\"}\n\n") + line + "\n");
    EXPECT_THAT(message, StartsWith("m.jsonl:3: ")) << line;
    EXPECT_THAT(message, HasSubstr(reason)) << line;
  }
  EXPECT_THAT(error(std::string_view("\0", 1)), StartsWith("m.jsonl:1: not JSON"));
}

TEST(Manifest, ParametersAloneAreReadAsALinesAre) {
  const Parameters wanted{{"dtype", "bf16"}, {"max_cols", "128"}, {"bias", "true"}};
  EXPECT_EQ(parse_parameters(R"({"dtype": "bf16", "max_cols": 128, "bias": true})"),
            wanted);
  EXPECT_EQ(parse_parameters("{}"), Parameters{});
  for (const char* const wrong : {"", "{", "[]", "7", R"({"a": 1.5})", R"({"a": {}})",
                                  R"({"a": "1", "a": "2"})", "{} {}"}) {
    const auto refused = parse_parameters(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << wrong;
    EXPECT_THAT(refused.error().message, StartsWith("parameters: ")) << wrong;
  }
}

TEST(Manifest, SizesAndDepthAreBounded) {
  EXPECT_THAT(error("{\"source\":\"" + std::string(kMaxManifestLineBytes, 'x') + "\"}"),
              HasSubstr("over the limit"));
  std::string many;
  for (std::size_t i = 0; i <= kMaxManifestEntries; ++i)
    many += "{\"template\":\"a\"}\n";
  EXPECT_THAT(error(many), StartsWith("m.jsonl:100001: over the limit"));
  const std::string deep(1000000, '[');
  EXPECT_THAT(error("{\"template\":\"a\",\"params\":" + deep),
              StartsWith("m.jsonl:1: not JSON"));
  EXPECT_THAT(error("{\"template\":\"a\",\"params\":" + deep +
                    std::string(deep.size(), ']') + "}"),
              HasSubstr("nested over 8 levels"));
}

TEST(Manifest, EveryTruncationAndManyFlipsAreAnErrorOrARequest) {
  const std::string whole =
      R"({"source":"a\u00e9","headers":{"x":"y"},"options":["-G"],"names":["n"],)"
      R"("arch":"9.0"})";
  for (std::size_t size = 1; size < whole.size(); ++size)
    EXPECT_THAT(error(whole.substr(0, size)), StartsWith("m.jsonl:1: ")) << size;
  std::mt19937 random(7);
  for (int i = 0; i < 5000; ++i) {
    std::string text = whole;
    text[random() % text.size()] = static_cast<char>(random());
    const std::string message = error(text);
    EXPECT_THAT(message, testing::AnyOf("", StartsWith("m.jsonl:")));
  }
}

TEST(Manifest, ALineThatWasWrittenIsReadBack) {
  const Request kernel("a", {{"dtype", "bf16"}, {"odd\"\n", "é\\"}});
  const Request source = Request::from_source({.source = "x\n\"\\\u2028",
                                               .headers = {{"a.h", "b"}},
                                               .include_dirs = {"/inc"},
                                               .defines = {"A=1"},
                                               .options = {"--std=c++20", "-G"},
                                               .name_expressions = {"f<1>"}});
  const auto nine = *device::parse_target("compute_90a");
  const std::string text =
      *manifest_line(kernel, nine) + *manifest_line(source, std::nullopt);
  const auto entries = entries_of(text);
  EXPECT_EQ(entries[0].request.parameters(), kernel.parameters());
  EXPECT_EQ(entries[0].architecture, nine);
  const SourceOptions& read = entries[1].request.source();
  EXPECT_EQ(read.source, source.source().source);
  EXPECT_EQ(read.headers, source.source().headers);
  EXPECT_EQ(read.include_dirs, source.source().include_dirs);
  EXPECT_EQ(read.defines, source.source().defines);
  EXPECT_EQ(read.options, source.source().options);
  EXPECT_EQ(read.name_expressions, source.source().name_expressions);
  EXPECT_EQ(*manifest_line(entries[1].request, std::nullopt),
            *manifest_line(source, std::nullopt));
}

TEST(Manifest, ALinkThatWasWrittenIsReadBack) {
  const Request several = Request::from_sources(
      {{.source = "a", .name_expressions = {"f<1>"}},
       {.source = "b", .file_name = "b.cu", .options = {"-dlto"}}},
      {.files = {"/lib/c.o", "/lib/d.a"}, .options = {"-Xptxas=-O1"}});
  const Request one = Request::from_sources({{.source = "a"}}, {.files = {"/c.o"}});
  const std::string text =
      *manifest_line(several, std::nullopt) + *manifest_line(one, std::nullopt);
  const auto entries = entries_of(text);
  const Request& read = entries[0].request;
  ASSERT_EQ(read.sources().size(), 2U);
  EXPECT_THAT(read.sources()[0].name_expressions, ElementsAre("f<1>"));
  EXPECT_THAT(read.sources()[1].file_name, testing::EndsWith("/b.cu"));
  EXPECT_THAT(read.sources()[1].options, ElementsAre("-dlto"));
  EXPECT_THAT(read.link().files, ElementsAre("/lib/c.o", "/lib/d.a"));
  EXPECT_THAT(read.link().options, ElementsAre("-Xptxas=-O1"));
  EXPECT_THAT(entries[1].request.link().files, ElementsAre("/c.o"));
  EXPECT_EQ(*manifest_line(read, std::nullopt) +
                *manifest_line(entries[1].request, std::nullopt),
            text);
}

TEST(Manifest, TextThatIsNotUtf8CannotBeWritten) {
  EXPECT_THAT(manifest_line(Request::from_source({.source = "\xff"}), std::nullopt),
              test::IsError(ErrorCode::kInvalidArgument));
}

TEST(Manifest, AFileIsReadByItsPath) {
  const test::TempDir dir;
  const auto path = dir.path() / "m.jsonl";
  EXPECT_EQ(read_manifest(path).error().code, ErrorCode::kNotFound);
  test::write_text(path, "{\"template\":\"a\"}\nx\n");
  EXPECT_THAT(read_manifest(path)->at(1).error().message,
              StartsWith(path.string() + ":2: "));
}

TEST(Manifest, ARelativeFolderIsBesideTheManifest) {
  const test::TempDir dir;
  const auto path = dir.path() / "m.jsonl";
  test::write_text(path, R"({"source":"","include_dirs":["inc","/abs",""]})"
                         "\n"
                         R"({"sources":[{"source":""}],"link_files":["a.o","/b.o"]})");
  EXPECT_THAT(read_manifest(path)->at(1)->request.link().files,
              ElementsAre(dir.path() / "a.o", "/b.o"));
  EXPECT_THAT(read_manifest(path)->at(0)->request.source().include_dirs,
              ElementsAre(dir.path() / "inc", "/abs", ""));
}

}  // namespace
}  // namespace kiln::request
