// What must not change a key, and what it is the digest of. What must change it stands
// in tests/support/key_changes.h and is tried with the faults.

#include "key/key.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/support/key_changes.h"

namespace kiln::key {
namespace {

using Source = test::KeyedSource;
using Template = test::KeyedTemplate;

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

TEST(SourceKey, OfASourceAsNvrtcsHasADigestOfTheText) {
  Source source;
  source.input.form = SourceForm::kNvrtc;
  const Fields fields = source_preimage(source.context, source.input, source.headers);
  EXPECT_EQ(fields.find("source"), std::nullopt);
  EXPECT_EQ(fields.find("source_sha256"), Digest::of(as_bytes("bc")).hex());
  EXPECT_TRUE(is_as_nvrtc(fields));
  EXPECT_FALSE(is_as_nvrtc(source_preimage(source.context, Source().input, {})));
  source.input.source = "bd";
  EXPECT_NE(source.key(), fields.digest());
}

TEST(LinkKey, EachInputAndItsPlaceMatters) {
  const Digest one = Digest::of(as_bytes("1"));
  const Digest two = Digest::of(as_bytes("2"));
  const key::LinkKeyInput input{.target = "sm_90",
                                .options = {"-arch=sm_90", "-lto"},
                                .objects = {one, two},
                                .files = {one},
                                .linker = "157d",
                                .device_runtime = "ab"};
  std::set<Digest> keys{key::link_preimage(input).digest()};
  const auto differs = [&](const auto& change) {
    key::LinkKeyInput other = input;
    change(other);
    return keys.insert(key::link_preimage(other).digest()).second;
  };
  EXPECT_TRUE(differs([](auto& link) { link.target = "sm_90a"; }));
  EXPECT_TRUE(differs([](auto& link) { link.options.pop_back(); }));
  EXPECT_TRUE(differs([](auto& link) { std::swap(link.options[0], link.options[1]); }));
  EXPECT_TRUE(differs([](auto& link) { std::swap(link.objects[0], link.objects[1]); }));
  EXPECT_TRUE(differs([&](auto& link) { link.files[0] = two; }));
  EXPECT_TRUE(differs([&](auto& link) {
    link.objects = {one};
    link.files = {two, one};
  }));
  EXPECT_TRUE(differs([](auto& link) { link.linker = "157e"; }));
  EXPECT_TRUE(differs([](auto& link) { link.device_runtime = ""; }));
}

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
            "a196be93751a4808d9e8768083c300cc2aa9df328b5c39a71f576b14be24a737");
  EXPECT_EQ(Source().key().hex(),
            "dd372d637c9288afe3899518fec219d74aad7b9ab56f8648980fc41bc60896d6");
}

}  // namespace
}  // namespace kiln::key
