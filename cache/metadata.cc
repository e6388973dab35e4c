#include "cache/metadata.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <string_view>

#include "util/try.h"

namespace kiln::cache {
namespace {

constexpr std::string_view kParamPrefix = "param:";
constexpr std::string_view kEntryPrefix = "entry:";
constexpr std::string_view kVariablePrefix = "variable:";

template <typename T>
Result<T> number(std::string_view label, std::string_view text) {
  T value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("metadata field {} is no number: '{}'", label, text));
  }
  return value;
}

using TextMember = std::string Metadata::*;
using NumberMember = std::uint64_t Metadata::*;

const std::map<std::string_view, TextMember>& text_members() {
  static const auto* const members = new std::map<std::string_view, TextMember>{
      {"template", &Metadata::template_name}, {"arch", &Metadata::arch},
      {"toolchain", &Metadata::toolchain},    {"producer", &Metadata::producer},
      {"min_driver", &Metadata::min_driver},
  };
  return *members;
}

const std::map<std::string_view, NumberMember>& number_members() {
  static const auto* const members = new std::map<std::string_view, NumberMember>{
      {"compile_ms", &Metadata::compile_ms},
      {"registers", &Metadata::registers},
      {"shared_bytes", &Metadata::shared_bytes},
      {"spill_bytes", &Metadata::spill_bytes},
  };
  return *members;
}

}  // namespace

Bytes Metadata::encode() const {
  Fields fields;
  for (const auto& [label, member] : text_members()) fields.add(label, this->*member);
  for (const auto& [label, member] : number_members())
    fields.add(label, std::to_string(this->*member));
  fields.add("created_ns", std::to_string(created_ns));
  for (const std::string& id : toolchain_build_ids) fields.add("build_id", id);
  for (const auto& [name, value] : params)
    fields.add(std::string(kParamPrefix) + name, value);
  for (const auto& [name, lowered] : entry_points)
    fields.add(std::string(kEntryPrefix) + name, lowered);
  for (const auto& [name, lowered] : variables)
    fields.add(std::string(kVariablePrefix) + name, lowered);
  return fields.encode();
}

Result<Metadata> Metadata::decode(ByteView bytes) {
  const Fields fields = KILN_TRY(Fields::decode(bytes));
  Metadata metadata;
  for (const auto& [label, value] : fields.list()) {
    const std::string_view name = label;
    if (const auto text = text_members().find(name); text != text_members().end())
      metadata.*(text->second) = value;
    else if (const auto count = number_members().find(name);
             count != number_members().end())
      metadata.*(count->second) = KILN_TRY(number<std::uint64_t>(label, value));
    else if (name == "created_ns")
      metadata.created_ns = KILN_TRY(number<std::int64_t>(label, value));
    else if (name == "build_id")
      metadata.toolchain_build_ids.push_back(value);
    else if (name.starts_with(kParamPrefix))
      metadata.params.push_back({label.substr(kParamPrefix.size()), value});
    else if (name.starts_with(kEntryPrefix))
      metadata.entry_points.push_back({label.substr(kEntryPrefix.size()), value});
    else if (name.starts_with(kVariablePrefix))
      metadata.variables.push_back({label.substr(kVariablePrefix.size()), value});
  }
  return metadata;
}

Result<std::vector<std::string_view>> lowered_names(ByteView encoded) {
  std::vector<std::string_view> names;
  FieldReader reader(encoded);
  while (const auto field = KILN_TRY(reader.next())) {
    if (field->label.starts_with(kEntryPrefix))
      names.push_back(field->value);
  }
  return names;
}

}  // namespace kiln::cache
