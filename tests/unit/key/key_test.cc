// Every field of a key, changed alone; and what must not change it.

#include "key/key.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

namespace kiln::key {
namespace {

using cache::Digest;

BuildContext context() {
  return {device::ImageKind::kCubin, "sm_90", {"nvrtc-id", "builtins-id"}};
}

struct Source {
  BuildContext context = key::context();
  SourceKeyInput input = {
      .source = "bc",
      .options = {"--use_fast_math", "a"},
      .macros = {{MacroAction::kDefine, "A"}, {MacroAction::kDefine, "B=1"}},
      .include_dirs = {},
      .memory_headers = {},
      .name_expressions = {"f<int>", "g"}};
  HeaderSnapshot headers;

  Source() { headers.fields.add("header/a.h", "digest"); }
  [[nodiscard]] Digest key() const {
    return source_preimage(context, input, headers).digest();
  }
};

struct SourceCase {
  const char* name;
  std::function<void(Source&)> change;
};

void PrintTo(const SourceCase& test, std::ostream* out) {
  *out << test.name;
}

class SourceKeyTest : public testing::TestWithParam<SourceCase> {};

TEST_P(SourceKeyTest, ChangesWithEachField) {
  Source changed;
  GetParam().change(changed);
  EXPECT_NE(changed.key(), Source().key());
}

const std::vector<SourceCase> kSourceCases = {
    {"Kind", [](Source& s) { s.context.kind = device::ImageKind::kPtx; }},
    {"Suffix", [](Source& s) { s.context.target = "sm_90a"; }},
    {"Virtual", [](Source& s) { s.context.target = "compute_90"; }},
    {"Nvrtc", [](Source& s) { s.context.toolchain.nvrtc = "other"; }},
    {"Builtins", [](Source& s) { s.context.toolchain.builtins = "other"; }},
    {"ToolchainSwapped",
     [](Source& s) {
       std::swap(s.context.toolchain.nvrtc, s.context.toolchain.builtins);
     }},
    {"Text", [](Source& s) { s.input.source += " "; }},
    {"TextAgainstOption",  // "a", "bc" and "ab", "c"
     [](Source& s) {
       s.input.options.back() = "ab";
       s.input.source = "c";
     }},
    {"Option", [](Source& s) { s.input.options.emplace_back("-G"); }},
    {"OptionOrder",
     [](Source& s) { std::swap(s.input.options[0], s.input.options[1]); }},
    {"OptionsJoined", [](Source& s) { s.input.options = {"--use_fast_matha"}; }},
    {"MacroValue", [](Source& s) { s.input.macros[1].text = "B=2"; }},
    {"MacrosJoined",  // -DA -DB=1 and -DA-DB=1
     [](Source& s) {
       s.input.macros = {{MacroAction::kDefine, "A-DB=1"}};
     }},
    {"Undefined", [](Source& s) { s.input.macros[0].action = MacroAction::kUndefine; }},
    {"MacroGone", [](Source& s) { s.input.macros.pop_back(); }},
    {"MacroAsOption",
     [](Source& s) {
       s.input.macros.pop_back();
       s.input.options.emplace_back("-DB=1");
     }},
    {"Name", [](Source& s) { s.input.name_expressions[1] = "h"; }},
    {"NamesJoined", [](Source& s) { s.input.name_expressions = {"f<int>g"}; }},
    {"Header", [](Source& s) { s.headers.fields.add("header/b.h", "digest"); }},
};

INSTANTIATE_TEST_SUITE_P(Table, SourceKeyTest, testing::ValuesIn(kSourceCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(SourceKey, IgnoresTheOrderOfNamesAndOfMacrosOfDifferentNames) {
  Source changed;
  std::swap(changed.input.name_expressions[0], changed.input.name_expressions[1]);
  std::swap(changed.input.macros[0], changed.input.macros[1]);
  EXPECT_EQ(changed.key(), Source().key());
}

TEST(SourceKey, KeepsTheOrderOfMacrosOfOneName) {
  Source once;
  once.input.macros = {{MacroAction::kDefine, "A=1"}, {MacroAction::kUndefine, "A"}};
  Source other;
  other.input.macros = {{MacroAction::kUndefine, "A"}, {MacroAction::kDefine, "A=1"}};
  EXPECT_NE(once.key(), other.key());
  Source function_like;
  function_like.input.macros = {{MacroAction::kDefine, "A(x)=1"},
                                {MacroAction::kDefine, "A=2"}};
  Source reversed = function_like;
  std::swap(reversed.input.macros[0], reversed.input.macros[1]);
  EXPECT_NE(function_like.key(), reversed.key());
}

TEST(SourceKey, KnowsNoIncludePath) {
  Source changed;
  changed.input.include_dirs = {"/somewhere/else"};
  EXPECT_EQ(changed.key(), Source().key());
}

struct Template {
  BuildContext context = key::context();
  TemplateKeyInput input = {
      .kernel = "softmax_fwd",
      .digests = {Digest::of(as_bytes("text")), Digest::of(as_bytes("manifest")),
                  Digest::of(as_bytes("prelude")), Digest::of(as_bytes("renderer"))},
      .options = {"-std=c++17"},
      .name_expressions = {"f"}};
  HeaderSnapshot headers;
  std::vector<Parameter> parameters = {{"dtype", "bf16"}, {"max_cols", "512"}};

  [[nodiscard]] Digest key() const {
    return TemplateKeys(context, input, headers).key(parameters);
  }
};

struct TemplateCase {
  const char* name;
  std::function<void(Template&)> change;
};

void PrintTo(const TemplateCase& test, std::ostream* out) {
  *out << test.name;
}

class TemplateKeyTest : public testing::TestWithParam<TemplateCase> {};

TEST_P(TemplateKeyTest, ChangesWithEachField) {
  Template changed;
  GetParam().change(changed);
  EXPECT_NE(changed.key(), Template().key());
}

const Digest kOther = Digest::of(as_bytes("other"));

const std::vector<TemplateCase> kTemplateCases = {
    {"Kind", [](Template& t) { t.context.kind = device::ImageKind::kPtx; }},
    {"Target", [](Template& t) { t.context.target = "sm_90a"; }},
    {"Builtins", [](Template& t) { t.context.toolchain.builtins = "other"; }},
    {"Kernel", [](Template& t) { t.input.kernel = "softmax_bwd"; }},
    {"Text", [](Template& t) { t.input.digests.text = kOther; }},
    {"Manifest", [](Template& t) { t.input.digests.manifest = kOther; }},
    {"Prelude", [](Template& t) { t.input.digests.prelude = kOther; }},
    {"Renderer", [](Template& t) { t.input.digests.renderer = kOther; }},
    {"DigestsSwapped",
     [](Template& t) { std::swap(t.input.digests.text, t.input.digests.prelude); }},
    {"Option", [](Template& t) { t.input.options.emplace_back("-G"); }},
    {"Name", [](Template& t) { t.input.name_expressions.emplace_back("g"); }},
    {"Header", [](Template& t) { t.headers.fields.add("header/a.h", "x"); }},
    {"Value", [](Template& t) { t.parameters[0].value = "f16"; }},
    {"Parameter", [](Template& t) { t.parameters[0].name = "type"; }},
    {"ParameterGone", [](Template& t) { t.parameters.pop_back(); }},
    {"Boundary",  // "dtype", "bf16" and "dtypeb", "f16"
     [](Template& t) {
       t.parameters[0] = {"dtypeb", "f16"};
     }},
    {"ValuesSwapped",
     [](Template& t) { std::swap(t.parameters[0].value, t.parameters[1].value); }},
};

INSTANTIATE_TEST_SUITE_P(Table, TemplateKeyTest, testing::ValuesIn(kTemplateCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(TemplateKey, IgnoresTheOrderOfParameters) {
  Template changed;
  std::swap(changed.parameters[0], changed.parameters[1]);
  EXPECT_EQ(changed.key(), Template().key());
}

TEST(TemplateKey, IsTheDigestOfThePreimage) {
  const Template request;
  const TemplateKeys keys(request.context, request.input, request.headers);
  EXPECT_EQ(keys.key(request.parameters), keys.preimage(request.parameters).digest());
  EXPECT_EQ(keys.key({}), keys.preimage({}).digest());
}

TEST(TemplateKey, IsTheSameOnEveryMachineAndInEveryVersion) {
  // A change here makes every cache in the world miss: raise kSchemaVersion instead of
  // editing what a field means.
  EXPECT_EQ(Template().key().hex(),
            "0660308ef4195215aa798241a89b2a3e4abec5e3020f4be060a253d9e5677d52");
  EXPECT_EQ(Source().key().hex(),
            "b8af6d4f672ef9390382320f38ae07412a913f513ac00d2bf7e2bc65b402e72b");
}

}  // namespace
}  // namespace kiln::key
