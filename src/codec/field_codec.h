// One description of a struct for both ways: as fields, and back. It names every field
// of the struct, so that one that is added does not compile until it is in here; and
// what it writes is what it reads.
//
//   constexpr auto kInputFields = [](auto& codec, auto& input) {
//     auto& [name, bytes] = input;
//     codec("name", name);
//     codec("bytes", bytes);
//   };
//
//   Fields fields = fields_of(input, kInputFields);
//   Result<LinkInput> input = read_fields<LinkInput>(fields, "message", kInputFields);
//
// EveryField describes any struct, of structs, too, for a writer and a reader of one
// build: its labels are the places of the fields.

#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "codec/field_decoder.h"
#include "codec/fields.h"
#include "kiln/result.h"
#include "util/bytes.h"
#include "util/field_count.h"

namespace kiln {

template <typename Value, typename Description>
Fields fields_of(const Value& value, const Description& description);

/// Writes what FieldDecoder reads by the functions of the same names.
class FieldEncoder {
 public:
  explicit FieldEncoder(Fields& fields) : fields_(fields) {}

  template <typename Value>
  void operator()(std::string_view label, const Value& value) {
    if constexpr (std::is_same_v<Value, std::filesystem::path>)
      fields_.add(label, value.native());
    else if constexpr (std::is_same_v<Value, Bytes>)
      fields_.add(label, as_text(value));
    else if constexpr (std::is_convertible_v<const Value&, std::string_view>)
      fields_.add(label, value);
    else if constexpr (std::is_integral_v<Value>)
      add_number(fields_, label, value);
    else if constexpr (requires { value.count(); })
      add_number(fields_, label, value.count());
    else if constexpr (requires { value.has_value(); })
      value ? (*this)(label, *value) : void();
    else
      for (const auto& each : value) (*this)(label, each);
  }
  template <typename Enum>
  void enumerator(std::string_view label, Enum value, Enum /*last*/) {
    add_number(fields_, label, static_cast<unsigned>(value));
  }
  template <typename Value, typename Description>
  void one(std::string_view label, const Value& value, const Description& description) {
    fields_.add(label, as_text(fields_of(value, description).encode()));
  }
  template <typename List, typename Description>
  void each(std::string_view label, const List& list, const Description& description) {
    for (const auto& value : list) one(label, value, description);
  }
  template <typename Optional, typename Description>
  void one_if_set(std::string_view label, const Optional& value,
                  const Description& description) {
    if (value)
      one(label, *value, description);
  }

 private:
  Fields& fields_;
};

template <typename Value, typename Description>
Fields fields_of(const Value& value, const Description& description) {
  Fields fields;
  FieldEncoder encoder(fields);
  description(encoder, value);
  return fields;
}

/// Calls `use` with each field. `record`: an aggregate without a base, of at most 15
/// fields, const or not.
template <typename Record, typename Use>
constexpr void for_each_field(Record& record, const Use& use) {
  constexpr std::size_t kCount = field_count<std::remove_const_t<Record>>();
  const auto use_all = [&use](auto&... fields) { (use(fields), ...); };
#define KILN_FIELDS(count, ...)    \
  if constexpr (kCount == count) { \
    auto& [__VA_ARGS__] = record;  \
    use_all(__VA_ARGS__);          \
  }
  // NOLINTBEGIN(bugprone-macro-parentheses)
  KILN_FIELDS(1, a)
  KILN_FIELDS(2, a, b)
  KILN_FIELDS(3, a, b, c)
  KILN_FIELDS(4, a, b, c, d)
  KILN_FIELDS(5, a, b, c, d, e)
  KILN_FIELDS(6, a, b, c, d, e, f)
  KILN_FIELDS(7, a, b, c, d, e, f, g)
  KILN_FIELDS(8, a, b, c, d, e, f, g, h)
  KILN_FIELDS(9, a, b, c, d, e, f, g, h, i)
  KILN_FIELDS(10, a, b, c, d, e, f, g, h, i, j)
  KILN_FIELDS(11, a, b, c, d, e, f, g, h, i, j, k)
  KILN_FIELDS(12, a, b, c, d, e, f, g, h, i, j, k, l)
  KILN_FIELDS(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
  KILN_FIELDS(14, a, b, c, d, e, f, g, h, i, j, k, l, m, n)
  KILN_FIELDS(15, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
  // NOLINTEND(bugprone-macro-parentheses)
#undef KILN_FIELDS
  static_assert(kCount >= 1 && kCount <= 15);
}

/// Of each enumeration that EveryField meets.
template <typename Enum>
inline constexpr std::nullptr_t kLastEnumerator = nullptr;

template <typename Value>
concept Record = std::is_aggregate_v<Value>;

struct EveryField {
  template <typename Codec, typename Value>
  void operator()(Codec& codec, Value& value) const {
    int place = 0;
    for_each_field(value,
                   [&](auto& field) { code(codec, std::to_string(++place), field); });
  }

 private:
  template <typename Codec, typename Field>
  void code(Codec& codec, const std::string& label, Field& field) const {
    using Value = std::remove_const_t<Field>;
    if constexpr (std::is_enum_v<Value>)
      codec.enumerator(label, field, kLastEnumerator<Value>);
    else if constexpr (Record<Value>)
      codec.one(label, field, *this);
    else if constexpr (requires { requires Record<typename Value::value_type>; }) {
      if constexpr (requires { field.has_value(); })
        codec.one_if_set(label, field, *this);
      else
        codec.each(label, field, *this);
    } else {
      codec(label, field);
    }
  }
};

/// Unknown fields are ignored. Errors: kCorrupt for a field that is missing or has an
/// impossible value; the message starts with `subject`.
template <typename Value, typename Description>
Result<Value> read_fields(const Fields& fields, std::string_view subject,
                          const Description& description) {
  FieldDecoder decoder(fields, subject);
  Value value{};
  description(decoder, value);
  return decoder.finish(std::move(value));
}

}  // namespace kiln
