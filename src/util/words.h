// The words for the values of an enumeration: the names of its enumerators, as users
// write and read them.

#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>

#include "kiln/result.h"
#include "util/try.h"

namespace kiln {

/// Of each enumerator, whose values count from 0. interface/enumeration_words.h, which
/// follows from the headers of operations, has those of their enumerations.
template <typename Enum>
inline constexpr std::array<std::string_view, 0> kWords{};

/// The word of kUnset, and of a value that is no enumerator. Nobody writes it.
inline constexpr std::string_view kUnsetWord = "unset";

template <typename Enum>
[[nodiscard]] constexpr std::string_view word_of(Enum value) {
  const auto at = static_cast<std::size_t>(value);
  return at < kWords<Enum>.size() ? kWords<Enum>[at] : kUnsetWord;
}

/// The same of an enumeration whose words nobody writes: word_of(answer, {"no",
/// "yes"}).
template <typename Enum>
[[nodiscard]] constexpr std::string_view word_of(
    Enum value, std::initializer_list<std::string_view> words,
    std::string_view no_enumerator = "unknown") {
  const auto at = static_cast<std::size_t>(value);
  return at < words.size() ? words.begin()[at] : no_enumerator;
}

/// Those that users may write, in the order of the enumerators.
template <typename Enum>
[[nodiscard]] constexpr std::span<const std::string_view> words_of() {
  constexpr std::span<const std::string_view> kAll = kWords<Enum>;
  static_assert(!kAll.empty());
  return kAll.subspan(kAll.front() == kUnsetWord ? 1 : 0);
}

/// Errors: kInvalidArgument, with all words and the nearest one.
[[nodiscard]] Result<std::size_t> position_of(std::string_view word,
                                              std::span<const std::string_view> words);

/// The value with that word. Errors: as position_of().
template <typename Enum>
[[nodiscard]] Result<Enum> parse_word(std::string_view word) {
  constexpr std::span<const std::string_view> kWritten = words_of<Enum>();
  const std::size_t position = KILN_TRY(position_of(word, kWritten));
  return static_cast<Enum>(position + kWords<Enum>.size() - kWritten.size());
}

}  // namespace kiln
