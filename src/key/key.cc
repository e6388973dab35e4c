#include "key/key.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "util/little_endian.h"

namespace kiln::key {
namespace {

void add_context(Fields& fields, const BuildContext& context) {
  const auto& [kind, target, toolchain] = context;  // add_rest() adds the toolchain
  fields.add("schema", std::to_string(kSchemaVersion));
  fields.add("kind", kind == device::ImageKind::kCubin ? "cubin"
                     : kind == device::ImageKind::kPtx ? "ptx"
                                                       : "ltoir");
  fields.add("target", target);
}

void add_options(Fields& fields, const std::vector<std::string>& options) {
  for (const std::string& option : options) fields.add("option", option);
}

std::string_view macro_name(const Macro& macro) {
  return std::string_view(macro.text).substr(0, macro.text.find_first_of("=( "));
}

// Order matters only among macros of one name.
void add_macros(Fields& fields, std::vector<Macro> macros) {
  std::stable_sort(macros.begin(), macros.end(), [](const Macro& a, const Macro& b) {
    return macro_name(a) < macro_name(b);
  });
  for (const auto& [action, text] : macros)
    fields.add("macro", (action == MacroAction::kDefine ? "-D" : "-U") + text);
}

void add_all(Fields& fields, const Fields& more) {
  for (const Field& field : more.list()) fields.add(field.label, field.value);
}

// Adds the fields at the end of every preimage.
void add_rest(Fields& fields, const std::vector<std::string>& name_expressions,
              const HeaderSnapshot& headers, const ToolchainIdentity& toolchain) {
  const auto& [nvrtc, builtins] = toolchain;
  const std::set<std::string> names(name_expressions.begin(), name_expressions.end());
  for (const std::string& name : names) fields.add("name_expression", name);
  add_all(fields, headers.fields);
  fields.add("toolchain/nvrtc", nvrtc);
  fields.add("toolchain/builtins", builtins);
}

std::vector<const Parameter*> sorted(std::span<const Parameter> parameters) {
  std::vector<const Parameter*> order;
  order.reserve(parameters.size());
  for (const Parameter& parameter : parameters) order.push_back(&parameter);
  std::ranges::sort(order, {}, &Parameter::name);
  return order;
}

constexpr std::string_view kParameterLabel = "parameter/";
constexpr const char* kFormLabel = "form";
constexpr const char* kNvrtcForm = "nvrtc";

}  // namespace

Fields source_preimage(const BuildContext& context, const SourceKeyInput& input,
                       const HeaderSnapshot& headers) {
  // Names every member, as the code that makes the job does: a new input does not
  // compile until both handle it. `headers` has the contents of the include folders.
  const auto& [source, options, macros, include_dirs, memory_headers, names,
               program_name, has_name, form, working_directory, paths] = input;
  Fields fields;
  add_context(fields, context);
  const bool as_nvrtc = form == SourceForm::kNvrtc;
  if (as_nvrtc)
    fields.add(kFormLabel, kNvrtcForm);
  add_options(fields, options);
  add_macros(fields, macros);
  if (as_nvrtc)  // the preimage goes where the source does not
    fields.add("source_sha256", Digest::of(as_bytes(source)).hex());
  else
    fields.add("source", source);
  if (has_name)
    fields.add("program_name", program_name);
  for (const std::string& path : paths) fields.add("path", path);
  add_rest(fields, names, headers, context.toolchain);
  return fields;
}

bool is_as_nvrtc(const Fields& preimage) {
  return preimage.find(kFormLabel) == kNvrtcForm;
}

Fields link_preimage(const LinkKeyInput& input) {
  const auto& [target, options, objects, files, linker, device_runtime] = input;
  Fields fields;
  fields.add("schema", std::to_string(kSchemaVersion));
  fields.add("kind", "cubin");
  fields.add("target", target);
  for (const std::string& option : options) fields.add("link/option", option);
  for (const Digest& object : objects) fields.add("link/object", object.hex());
  for (const Digest& file : files) fields.add("link/file", file.hex());
  fields.add("toolchain/nvjitlink", linker);
  fields.add("toolchain/cudadevrt", device_runtime);
  return fields;
}

TemplateKeys::TemplateKeys(const BuildContext& context, const TemplateKeyInput& input,
                           const HeaderSnapshot& headers) {
  const auto& [kernel, digests, options, names] = input;
  add_context(before_, context);
  add_options(before_, options);
  before_.add("kernel", kernel);
  const auto& [text, manifest, prelude, renderer] = digests;
  before_.add("template/text", text.hex());
  before_.add("template/manifest", manifest.hex());
  before_.add("template/prelude", prelude.hex());
  before_.add("template/renderer", renderer.hex());
  add_rest(after_, names, headers, context.toolchain);
  encoded_before_ = before_.encode();
  encoded_after_ = after_.encode();
}

Digest TemplateKeys::key(std::span<const Parameter> parameters) const {
  // The same bytes as preimage().encode(), without building the list.
  Bytes bytes;
  bytes.reserve(encoded_before_.size() + encoded_after_.size() +
                64 * parameters.size());
  append(bytes, encoded_before_);
  for (const Parameter* parameter : sorted(parameters))
    append_field(bytes, std::string(kParameterLabel).append(parameter->name),
                 parameter->value);
  append(bytes, encoded_after_);
  return Digest::of(bytes);
}

Fields TemplateKeys::preimage(std::span<const Parameter> parameters) const {
  Fields fields = before_;
  for (const Parameter* parameter : sorted(parameters))
    fields.add(std::string(kParameterLabel).append(parameter->name), parameter->value);
  add_all(fields, after_);
  return fields;
}

}  // namespace kiln::key
