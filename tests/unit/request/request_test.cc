#include "kiln/request.h"

#include <atomic>
#include <string>

#include "request/first_resolve.h"
#include "request/program_name.h"
#include "request/resolve.h"
#include "tests/support/in_threads.h"
#include "tests/support/template_family.h"
#include "tests/support/test.h"

namespace kiln::request {
namespace {

/// Stands for Service::get.
std::string described(const Request& request) {
  std::string out = request.name();
  for (const auto& [name, value] : request.parameters())
    out += "|" + name + "=" + value;
  return out;
}

TEST(Request, IsWrittenInBracesInACall) {
  EXPECT_EQ(described({"scaled_softmax_fwd", {{"dtype", "bf16"}}}),
            "scaled_softmax_fwd|dtype=bf16");
  EXPECT_EQ(described({"a", {{"dtype", "bf16"}, {"max_cols", "128"}}}),
            "a|dtype=bf16|max_cols=128");
  EXPECT_EQ(described({"a"}), "a");
  EXPECT_EQ(described(std::string("a")), "a");
}

TEST(Request, WhatItWasFirstResolvedWithHoldsForAllCopies) {
  const Request one("a");
  const Request copy = one;
  const auto give = [](const Request& request, int value) {
    return FirstResolve::get<int>(request, nullptr,
                                  [&]() -> Result<std::shared_ptr<const int>> {
                                    if (value < 0)
                                      return fail(ErrorCode::kIo, "no");
                                    return std::make_shared<const int>(value);
                                  });
  };
  EXPECT_FALSE(give(one, -1));  // a failure is not kept
  EXPECT_EQ(**give(one, 1), 1);
  EXPECT_EQ(**give(copy, 2), 1);
  EXPECT_EQ(**give(Request("a"), 3), 3);
}

TEST(Request, ManyThreadsResolveItOnce) {
  const Request request("a");
  std::atomic<int> calls = 0;
  test::in_threads(8, [&] {
    const Request copy = request;
    const auto value = FirstResolve::get<int>(
        copy, nullptr, [&]() -> Result<std::shared_ptr<const int>> {
          return std::make_shared<const int>(++calls);
        });
    EXPECT_EQ(**value, 1);
  });
  EXPECT_EQ(calls, 1);
}

TEST(Request, ASourceKeepsWhatItWasGiven) {
  SourceOptions options{.source = "x", .file_name = "mine.cu", .defines = {"A=1"}};
  const Request request = Request::from_source(options);
  EXPECT_FALSE(request.is_template());
  EXPECT_EQ(request.name(), "mine.cu");
  EXPECT_EQ(request.source().defines, options.defines);
}

class ResolveTest : public testing::Test {
 protected:
  [[nodiscard]] Result<ResolvedRequest> run(const Request& request) const {
    return resolve(request, catalog_);
  }

  /// The message for a source with one option, "" where it is taken.
  [[nodiscard]] static std::string option_error(const std::string& option) {
    const auto out =
        resolve_source({.source = "x", .file_name = "mine.cu", .options = {option}});
    return out ? "" : out.error().message;
  }

  render::TemplateCatalog catalog_ = *test::BuiltIn().open();
};

TEST_F(ResolveTest, ATemplateGetsItsCanonicalParameters) {
  const auto out = run({"scale_fwd", {{"dtype", "f16"}, {"unroll", "002"}}});
  ASSERT_TRUE(out) << out.error().message;
  const auto& resolved = std::get<TemplateRequest>(*out);
  EXPECT_EQ(resolved.kernel->name(), "scale_fwd");
  EXPECT_EQ(resolved.params.values().at("unroll"), "2");
  EXPECT_EQ(resolved.params.values().at("max_cols"), "any");
}

TEST_F(ResolveTest, AWrongNameOrParameterIsAnErrorBeforeAnythingElse) {
  EXPECT_EQ(run({"scale_fw", {{"dtype", "f16"}}}).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(run({"scale_fw"}).error().message,
              HasSubstr("did you mean 'scale_fwd'?"));
  EXPECT_THAT(run({"scale_fwd", {{"dtype", "half"}}}).error().message,
              HasSubstr("allowed: f16, bf16, f32"));
}

TEST_F(ResolveTest, OptionsThatAreKilnsOwnAreRefusedWithTheReason) {
  for (const char* option :
       {"--gpu-architecture=sm_90", "-arch=sm_90", "-arch", "--gpu-architecture sm_90",
        "-gencode", "-code=sm_90", "--time=x.csv", "-time", "--fdevice-time-trace=x",
        "--optix-ir", "--gen-opt-lto", "-ptx", "-o", "--output-file=x",
        "--options-file=x", "-optf", "-fdevice-syntax-only"})
    EXPECT_THAT(option_error(option), HasSubstr("is refused: ")) << option;
  EXPECT_EQ(option_error("-arch=sm_90"),
            "mine.cu: option '-arch=sm_90' is refused: the target follows from the "
            "device or architecture that the kernel is for");
}

TEST_F(ResolveTest, OptionsForPrecompiledHeadersAreAWishAndNoOption) {
  const std::vector<std::vector<std::string>> wishes{
      {"--pch"},
      {"-pch"},
      {"--create-pch=x"},
      {"--use-pch", "x"},
      {"--pch-dir=x", "--pch"},
      {"--pch-messages=false"},
      {"--pch-verbose", "true", "--instantiate-templates-in-pch=true"}};
  for (auto wish : wishes) {
    wish.insert(wish.begin(), "-DA");
    wish.emplace_back("-G");
    const auto out = resolve_source({.source = "x", .options = wish});
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_TRUE(out->precompile) << wish[1];
    EXPECT_THAT(out->source.options, testing::ElementsAre("-DA", "-G")) << wish[1];
  }
  EXPECT_FALSE(resolve_source({.source = "x", .options = {"-G"}})->precompile);
  EXPECT_FALSE(resolve_source({.source = "x", .options = {"-I", "pch"}})->precompile);
}

TEST_F(ResolveTest, OtherOptionsAreTaken) {
  for (const char* option :
       {"-I/a", "-I", "--include-path=/a", "-DA=1", "-UA", "--std=c++20",
        "--use_fast_math", "-lineinfo", "-G", "--maxrregcount=64", "-rdc=false",
        "-default-device", "--ptxas-options=-v", "-archive", "--timely", "--time=-",
        "-time=-"})
    EXPECT_EQ(option_error(option), "") << option;
}

TEST_F(ResolveTest, WhatIsRelocatableIsLinkedAndSaysItInOneWay) {
  for (const char* option :
       {"-rdc=true", "--relocatable-device-code=true", "-dc", "--device-c"}) {
    const auto resolved =
        run(Request::from_source({.source = "x", .options = {"-G", option}}));
    ASSERT_TRUE(resolved) << resolved.error().message;
    const auto& objects = std::get<LinkRequest>(*resolved).objects;
    ASSERT_EQ(objects.size(), 1U);
    EXPECT_EQ(objects[0].object, ObjectKind::kRelocatable);
    EXPECT_THAT(objects[0].source.options,
                ElementsAre("-G", "--relocatable-device-code=true"))
        << option;
  }
  const auto lto = run(Request::from_source({.source = "x", .options = {"-dlto"}}));
  EXPECT_EQ(std::get<LinkRequest>(*lto).objects[0].object, ObjectKind::kLtoIr);
  EXPECT_TRUE(std::get<LinkRequest>(*lto).objects[0].source.options.empty());
  const auto no = run(Request::from_source({.source = "x", .options = {"-rdc=false"}}));
  EXPECT_TRUE(std::holds_alternative<SourceRequest>(*no));
}

TEST_F(ResolveTest, SeveralSourcesAreRelocatableUnasked) {
  const auto resolved = run(
      Request::from_sources({{.source = "x"}, {.source = "y", .options = {"-dlto"}}}));
  ASSERT_TRUE(resolved) << resolved.error().message;
  const auto& objects = std::get<LinkRequest>(*resolved).objects;
  EXPECT_EQ(objects[0].object, ObjectKind::kRelocatable);
  EXPECT_EQ(objects[1].object, ObjectKind::kLtoIr);
  EXPECT_TRUE(std::holds_alternative<SourceRequest>(
      *run(Request::from_sources({{.source = "x"}}))))
      << "one is no link";
}

TEST_F(ResolveTest, AWrongLinkIsRefusedInWords) {
  const auto why = [&](std::vector<SourceOptions> sources, LinkOptions link) {
    const auto resolved =
        run(Request::from_sources(std::move(sources), std::move(link)));
    return resolved ? "" : resolved.error().message;
  };
  EXPECT_THAT(why({}, {}), HasSubstr("without a source"));
  EXPECT_THAT(why({{.source = "x"}}, {.options = {"-arch=sm_80"}}),
              HasSubstr("link option '-arch=sm_80' is refused: the target follows"));
  EXPECT_THAT(why({{.source = "x"}}, {.options = {"lto"}}),
              HasSubstr("begin with '-'"));
  EXPECT_THAT(why({{.source = "x"}}, {.files = {""}}), HasSubstr("a file to link"));
  EXPECT_THAT(why({{.source = "x", .options = {"-dlto", "-arch=sm_80"}}}, {}),
              HasSubstr("'-arch=sm_80' is refused"));
}

TEST_F(ResolveTest, WhatCWouldCutShortIsRefused) {
  const std::string nul("a\0b", 3);
  const std::vector<SourceOptions> bad{
      {.source = nul},
      {.source = "x", .headers = {{nul, "x"}}},
      {.source = "x", .headers = {{"a.h", nul}}},
      {.source = "x", .headers = {{"", "x"}}},
      {.source = "x", .include_dirs = {nul}},
      {.source = "x", .include_dirs = {""}},
      {.source = "x", .defines = {nul}},
      {.source = "x", .defines = {""}},
      {.source = "x", .defines = {"=1"}},
      {.source = "x", .options = {nul}},
      {.source = "x", .options = {""}},
      {.source = "x", .name_expressions = {""}},
      {.source = "x", .name_expressions = {nul}},
  };
  for (std::size_t i = 0; i < bad.size(); ++i)
    EXPECT_EQ(resolve_source(bad[i]).error().code, ErrorCode::kInvalidArgument) << i;
}

TEST_F(ResolveTest, AHeaderWithTheSourcesNameIsRefused) {
  const auto refused = resolve_source(
      {.source = "x", .file_name = "dir/own.h", .headers = {{"own.h", "x"}}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message,
              HasSubstr("header 'own.h' has the name of the source itself"));
  EXPECT_TRUE(resolve_source(
      {.source = "x", .file_name = "own.h", .headers = {{"dir/own.h", "x"}}}));
}

TEST(ProgramName, IsTheFilesWithoutItsFolder) {
  EXPECT_EQ(program_name("attention.cu"), "attention.cu");
  EXPECT_EQ(program_name("/opt/k/attention.cu"), "attention.cu");
  EXPECT_EQ(program_name("../a b.cu"), "a b.cu");
  EXPECT_EQ(program_name("d/\u6838.cu"), "\u6838.cu");
}

TEST(ProgramName, IsOneLineOfTextWhateverTheFilesNameIs) {
  for (const char* none : {"", ".", "..", "a/", "a/.."})
    EXPECT_EQ(program_name(none), kNoName) << none;
  EXPECT_EQ(program_name(std::string_view("a\nb\0c\x7f.cu", 9)), "a_b_c_.cu");
  EXPECT_EQ(program_name("\xff.cu"), "\uFFFD.cu");
  const std::string longest(kMaxProgramNameBytes - 3, 'x');
  EXPECT_EQ(program_name(std::string(5000, 'x') + ".cu"), longest + ".cu");
  EXPECT_EQ(program_name("\u6838" + longest + ".c"), longest + ".c")
      << "no half of a character";
}

TEST_F(ResolveTest, SizesAreBounded) {
  EXPECT_EQ(resolve_source({.source = std::string(33U << 20U, 'x')}).error().code,
            ErrorCode::kResourceLimit);
  EXPECT_EQ(
      resolve_source({.source = "x", .options = std::vector<std::string>(5000, "-G")})
          .error()
          .code,
      ErrorCode::kResourceLimit);
}

}  // namespace
}  // namespace kiln::request
