#include "codec/fields.h"

#include <cstdint>

#include "util/little_endian.h"
#include "util/try.h"

namespace kiln {
namespace {

constexpr std::size_t kHeadBytes = sizeof(std::uint32_t) + sizeof(std::uint64_t);

}  // namespace

Result<std::optional<FieldReader::View>> FieldReader::next() {
  if (rest_.empty())
    return std::nullopt;
  if (rest_.size() < kHeadBytes)
    return fail(ErrorCode::kCorrupt, "a field list ends inside a field's lengths");
  const std::uint64_t label_size = load_le<std::uint32_t>(rest_, 0);
  const std::uint64_t value_size = load_le<std::uint64_t>(rest_, sizeof(std::uint32_t));
  rest_ = rest_.subspan(kHeadBytes);
  // Compared one by one: the sum of two lengths from a file may overflow.
  if (label_size > rest_.size() || value_size > rest_.size() - label_size)
    return fail(ErrorCode::kCorrupt, "a field is longer than the list that holds it");
  const View field{as_text(rest_.first(label_size)),
                   as_text(rest_.subspan(label_size, value_size))};
  rest_ = rest_.subspan(label_size + value_size);
  return field;
}

void append_field(Bytes& to, std::string_view label, std::string_view value) {
  append_le(to, static_cast<std::uint32_t>(label.size()));
  append_le(to, std::uint64_t{value.size()});
  append(to, as_bytes(label));
  append(to, as_bytes(value));
}

void Fields::add(std::string_view label, std::string_view value) {
  list_.push_back({std::string(label), std::string(value)});
}

std::optional<std::string_view> Fields::find(std::string_view label) const {
  for (const Field& field : list_) {
    if (field.label == label)
      return field.value;
  }
  return std::nullopt;
}

Bytes Fields::encode() const {
  std::size_t size = 0;
  for (const Field& field : list_)
    size += kHeadBytes + field.label.size() + field.value.size();
  Bytes bytes;
  bytes.reserve(size);
  for (const auto& [label, value] : list_) append_field(bytes, label, value);
  return bytes;
}

Result<Fields> Fields::decode(ByteView bytes) {
  Fields fields;
  FieldReader reader(bytes);
  while (const auto field = KILN_TRY(reader.next()))
    fields.add(field->label, field->value);
  return fields;
}

Digest Fields::digest() const {
  return Digest::of(encode());
}

}  // namespace kiln
