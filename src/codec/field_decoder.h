// Typed values in Fields: numbers, enumerators, lists, nested lists. The process that
// wrote them may have corrupted memory, so the decoder checks everything.

#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "codec/fields.h"
#include "kiln/result.h"
#include "util/bytes.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln {

template <typename Integer>
void add_number(Fields& fields, std::string_view label, Integer value) {
  fields.add(label, std::to_string(value));
}

/// Reads the fields of one value and remembers the first error, so that a reader is a
/// list of assignments and one finish(). Thread safety: one thread.
class FieldDecoder {
 public:
  /// The error's message starts with `subject`. Both must outlive the decoder.
  FieldDecoder(const Fields& fields, std::string_view subject)
      : fields_(fields), subject_(subject) {}

  std::string text(std::string_view label);

  template <typename Integer>
  Integer number(std::string_view label) {
    return parse<Integer>(text(label), label);
  }

  /// An enumerator from `first` to `last`.
  template <typename Enum>
  Enum one_of(std::string_view label, Enum last, Enum first = Enum{}) {
    return as_enum<Enum>(number<unsigned>(label), label, last, first);
  }

  [[nodiscard]] std::vector<std::string> texts(std::string_view label) const;

  template <typename Integer>
  std::vector<Integer> numbers(std::string_view label) {
    std::vector<Integer> list;
    for (const std::string& each : texts(label))
      list.push_back(parse<Integer>(each, label));
    return list;
  }

  /// The results of `read(FieldDecoder&)` for each nested list with that label.
  template <typename Read>
  auto nested(std::string_view label, const Read& read) {
    std::vector<std::invoke_result_t<Read, FieldDecoder&>> list;
    for (const Field& field : fields_.list()) {
      if (field.label != label)
        continue;
      const auto inner = Fields::decode(as_bytes(field.value));
      if (!inner) {
        note(inner.error().message);
        break;
      }
      FieldDecoder decoder(*inner, subject_);
      list.push_back(read(decoder));
      if (decoder.wrong_)
        note(*decoder.wrong_);
    }
    return list;
  }

  // For a description of a struct; field_codec.h says what that is.

  /// A text, path, bytes, number, truth or time; a list of texts, paths or numbers; a
  /// number that may be missing.
  template <typename Value>
  void operator()(std::string_view label, Value& value) {
    if constexpr (std::is_same_v<Value, Bytes>) {
      const std::string bytes = text(label);
      value.assign(as_bytes(bytes).begin(), as_bytes(bytes).end());
    } else if constexpr (std::is_assignable_v<Value&, std::string>) {
      value = text(label);
    } else if constexpr (std::is_same_v<Value, bool>) {
      value = number<unsigned>(label) != 0;
    } else if constexpr (std::is_integral_v<Value>) {
      value = number<Value>(label);
    } else if constexpr (requires { value.count(); }) {
      value = Value(number<typename Value::rep>(label));
    } else if constexpr (requires { value.has_value(); }) {
      const auto list = numbers<typename Value::value_type>(label);
      if (!list.empty())
        value = list.front();
    } else if constexpr (std::is_integral_v<typename Value::value_type>) {
      value = numbers<typename Value::value_type>(label);
    } else {
      for (std::string& each : texts(label)) value.emplace_back(std::move(each));
    }
  }
  template <typename Enum>
  void enumerator(std::string_view label, Enum& value, Enum last) {
    value = one_of(label, last);
  }
  /// The list of nested fields with that label.
  template <typename List, typename Description>
  void each(std::string_view label, List& list, const Description& description) {
    list = nested(label, [&](FieldDecoder& inner) {
      typename List::value_type value{};
      description(inner, value);
      return value;
    });
  }
  /// Exactly one.
  template <typename Value, typename Description>
  void one(std::string_view label, Value& value, const Description& description) {
    std::vector<Value> list;
    each(label, list, description);
    if (list.size() == 1)
      value = std::move(list.front());
    else
      note(fmt::format("field '{}' must be there once", label));
  }

  /// At most one.
  template <typename Optional, typename Description>
  void one_if_set(std::string_view label, Optional& value,
                  const Description& description) {
    std::vector<typename Optional::value_type> list;
    each(label, list, description);
    if (list.size() > 1)
      note(fmt::format("field '{}' must be there once at most", label));
    else if (!list.empty())
      value = std::move(list.front());
  }

  template <typename Enum>
  Enum as_enum(unsigned value, std::string_view label, Enum last, Enum first = Enum{}) {
    if (value > static_cast<unsigned>(last) || value < static_cast<unsigned>(first)) {
      note(fmt::format("field '{}' has no value {}", label, value));
      return first;
    }
    return static_cast<Enum>(value);
  }

  /// Records an error that only the caller can detect.
  void note(std::string what) {
    if (!wrong_)
      wrong_ = std::move(what);
  }

  /// `value`, if nothing was wrong. Errors: kCorrupt.
  template <typename T>
  Result<T> finish(T value) {
    if (wrong_)
      return fail(ErrorCode::kCorrupt, "{}: {}", subject_, *wrong_);
    return value;
  }

 private:
  template <typename Integer>
  Integer parse(const std::string& value, std::string_view label) {
    const auto number = number_of<Integer>(value);
    if (!number)
      note(fmt::format("field '{}' is no number that fits", label));
    return number.value_or(0);
  }

  const Fields& fields_;
  const std::string_view subject_;
  std::optional<std::string> wrong_;
};

}  // namespace kiln
