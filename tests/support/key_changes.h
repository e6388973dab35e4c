// A request's inputs to its key, and each way to change one of them.

#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "key/key.h"

namespace kiln::test {

using key::BuildContext;
using key::HeaderSnapshot;
using key::MacroAction;

inline BuildContext key_context() {
  return {device::ImageKind::kCubin, "sm_90", {"nvrtc-id", "builtins-id"}};
}

struct KeyedSource {
  BuildContext context = key_context();
  key::SourceKeyInput input = {
      .source = "bc",
      .options = {"--use_fast_math", "a"},
      .macros = {{MacroAction::kDefine, "A"}, {MacroAction::kDefine, "B=1"}},
      .include_dirs = {},
      .memory_headers = {},
      .name_expressions = {"f<int>", "g"}};
  HeaderSnapshot headers;

  KeyedSource() { headers.fields.add("header/a.h", "digest"); }
  [[nodiscard]] Digest key() const {
    return key::source_preimage(context, input, headers).digest();
  }
};

struct KeyedTemplate {
  BuildContext context = key_context();
  key::TemplateKeyInput input = {
      .kernel = "softmax_fwd",
      .digests = {Digest::of(as_bytes("text")), Digest::of(as_bytes("manifest")),
                  Digest::of(as_bytes("prelude")), Digest::of(as_bytes("renderer"))},
      .options = {"-std=c++17"},
      .name_expressions = {"f"}};
  HeaderSnapshot headers;
  std::vector<key::Parameter> parameters = {{"dtype", "bf16"}, {"max_cols", "512"}};

  [[nodiscard]] Digest key() const {
    return key::TemplateKeys(context, input, headers).key(parameters);
  }
};

/// One field changed, or one boundary between two moved.
template <typename Inputs>
struct KeyChange {
  const char* name;
  std::function<void(Inputs&)> change;
};

inline const std::vector<KeyChange<KeyedSource>> kSourceKeyChanges = {
    {"Kind", [](KeyedSource& s) { s.context.kind = device::ImageKind::kPtx; }},
    {"Suffix", [](KeyedSource& s) { s.context.target = "sm_90a"; }},
    {"Virtual", [](KeyedSource& s) { s.context.target = "compute_90"; }},
    {"Nvrtc", [](KeyedSource& s) { s.context.toolchain.nvrtc = "other"; }},
    {"Builtins", [](KeyedSource& s) { s.context.toolchain.builtins = "other"; }},
    {"ToolchainSwapped",
     [](KeyedSource& s) {
       std::swap(s.context.toolchain.nvrtc, s.context.toolchain.builtins);
     }},
    {"Text", [](KeyedSource& s) { s.input.source += " "; }},
    {"TextAgainstOption",  // "a", "bc" and "ab", "c"
     [](KeyedSource& s) {
       s.input.options.back() = "ab";
       s.input.source = "c";
     }},
    {"Option", [](KeyedSource& s) { s.input.options.emplace_back("-G"); }},
    {"OptionOrder",
     [](KeyedSource& s) { std::swap(s.input.options[0], s.input.options[1]); }},
    {"OptionsJoined", [](KeyedSource& s) { s.input.options = {"--use_fast_matha"}; }},
    {"MacroValue", [](KeyedSource& s) { s.input.macros[1].text = "B=2"; }},
    {"MacrosJoined",  // -DA -DB=1 and -DA-DB=1
     [](KeyedSource& s) {
       s.input.macros = {{MacroAction::kDefine, "A-DB=1"}};
     }},
    {"Undefined",
     [](KeyedSource& s) { s.input.macros[0].action = MacroAction::kUndefine; }},
    {"MacroGone", [](KeyedSource& s) { s.input.macros.pop_back(); }},
    {"MacroAsOption",
     [](KeyedSource& s) {
       s.input.macros.pop_back();
       s.input.options.emplace_back("-DB=1");
     }},
    {"Name", [](KeyedSource& s) { s.input.name_expressions[1] = "h"; }},
    {"NamesJoined", [](KeyedSource& s) { s.input.name_expressions = {"f<int>g"}; }},
    {"ProgramName", [](KeyedSource& s) { s.input.program_name = "other.cu"; }},
    {"Header", [](KeyedSource& s) { s.headers.fields.add("header/b.h", "digest"); }},
};

inline const Digest kOtherDigest = Digest::of(as_bytes("other"));

inline const std::vector<KeyChange<KeyedTemplate>> kTemplateKeyChanges = {
    {"Kind", [](KeyedTemplate& t) { t.context.kind = device::ImageKind::kPtx; }},
    {"Target", [](KeyedTemplate& t) { t.context.target = "sm_90a"; }},
    {"Builtins", [](KeyedTemplate& t) { t.context.toolchain.builtins = "other"; }},
    {"Kernel", [](KeyedTemplate& t) { t.input.kernel = "softmax_bwd"; }},
    {"Text", [](KeyedTemplate& t) { t.input.digests.text = kOtherDigest; }},
    {"Manifest", [](KeyedTemplate& t) { t.input.digests.manifest = kOtherDigest; }},
    {"Prelude", [](KeyedTemplate& t) { t.input.digests.prelude = kOtherDigest; }},
    {"Renderer", [](KeyedTemplate& t) { t.input.digests.renderer = kOtherDigest; }},
    {"DigestsSwapped",
     [](KeyedTemplate& t) {
       std::swap(t.input.digests.text, t.input.digests.prelude);
     }},
    {"Option", [](KeyedTemplate& t) { t.input.options.emplace_back("-G"); }},
    {"Name", [](KeyedTemplate& t) { t.input.name_expressions.emplace_back("g"); }},
    {"Header", [](KeyedTemplate& t) { t.headers.fields.add("header/a.h", "x"); }},
    {"Value", [](KeyedTemplate& t) { t.parameters[0].value = "f16"; }},
    {"Parameter", [](KeyedTemplate& t) { t.parameters[0].name = "type"; }},
    {"ParameterGone", [](KeyedTemplate& t) { t.parameters.pop_back(); }},
    {"Boundary",  // "dtype", "bf16" and "dtypeb", "f16"
     [](KeyedTemplate& t) {
       t.parameters[0] = {"dtypeb", "f16"};
     }},
    {"ValuesSwapped",
     [](KeyedTemplate& t) { std::swap(t.parameters[0].value, t.parameters[1].value); }},
};

}  // namespace kiln::test
