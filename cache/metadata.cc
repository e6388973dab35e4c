#include "cache/metadata.h"

#include <optional>
#include <string_view>
#include <type_traits>

#include "codec/field_codec.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

constexpr std::string_view kParamPrefix = "param:";
constexpr std::string_view kEntryPrefix = "entry:";
constexpr std::string_view kVariablePrefix = "variable:";

template <typename T>
Result<T> number(std::string_view label, std::string_view text) {
  const auto value = number_of<T>(text);
  if (!value)
    return fail(ErrorCode::kCorrupt, "metadata field {} is no number: '{}'", label,
                text);
  return *value;
}

/// One of both ways, as codec/field_codec.h says; the labels of the last three begin
/// so.
constexpr auto kMetadataFields = [](auto& codec, auto& metadata) {
  auto& [template_name, params, arch, toolchain, toolchain_build_ids, producer,
         created_ns, compile_ms, registers, shared_bytes, spill_bytes, entry_points,
         variables, min_driver, program, program_in] = metadata;
  codec("arch", arch);
  codec("min_driver", min_driver);
  codec("producer", producer);
  codec("template", template_name);
  codec("toolchain", toolchain);
  codec("compile_ms", compile_ms);
  codec("registers", registers);
  codec("shared_bytes", shared_bytes);
  codec("spill_bytes", spill_bytes);
  codec("created_ns", created_ns);
  codec("build_id", toolchain_build_ids);
  codec("program", program);
  codec("program_in", program_in);
  codec.pairs(kParamPrefix, params);
  codec.pairs(kEntryPrefix, entry_points);
  codec.pairs(kVariablePrefix, variables);
};

class Writer : public FieldEncoder {
 public:
  explicit Writer(Fields& fields) : FieldEncoder(fields) {}

  template <typename Pair>
  void pairs(std::string_view prefix, const std::vector<Pair>& list) {
    for (const auto& [name, value] : list) (*this)(std::string(prefix) + name, value);
  }
};

/// Gives one field to the member that it is of, if there is one.
class Reader {
 public:
  explicit Reader(const Field& field) : label_(field.label), value_(field.value) {}

  void operator()(std::string_view label, std::string& text) {
    if (label == label_)
      text = value_;
  }
  void operator()(std::string_view label, std::optional<std::string>& text) {
    if (label == label_)
      text = value_;
  }
  template <typename Integer>
  requires std::is_integral_v<Integer>
  void operator()(std::string_view label, Integer& count) {
    if (label != label_)
      return;
    const auto read = number<Integer>(label_, value_);
    count = read.value_or(0);
    if (!read)
      wrong_ = read.error();
  }
  void operator()(std::string_view label, std::vector<std::string>& texts) {
    if (label == label_)
      texts.push_back(value_);
  }
  template <typename Pair>
  void pairs(std::string_view prefix, std::vector<Pair>& list) {
    if (!label_.starts_with(prefix))
      return;
    auto& [name, value] = list.emplace_back();
    name = label_.substr(prefix.size());
    value = value_;
  }

  [[nodiscard]] Result<void> finish() const {
    return wrong_ ? tl::unexpected(*wrong_) : Result<void>();
  }

 private:
  const std::string& label_;
  const std::string& value_;
  std::optional<Error> wrong_;
};

}  // namespace

Bytes Metadata::encode() const {
  Fields fields;
  Writer writer(fields);
  kMetadataFields(writer, *this);
  return fields.encode();
}

Result<Metadata> Metadata::decode(ByteView bytes) {
  const Fields fields = KILN_TRY(Fields::decode(bytes));
  Metadata metadata;
  for (const Field& field : fields.list()) {
    Reader reader(field);
    kMetadataFields(reader, metadata);
    KILN_TRY(reader.finish());
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
