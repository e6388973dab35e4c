// KILN_TRY: the value of a Result, or an early return of its error. fail() and
// refuse(): an error whose message is formatted. about(): an error with its object.

#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kiln/result.h"

/// `auto bytes = KILN_TRY(read_file(path));` returns the error to this function's
/// caller when there is one. Usable only in a function that returns a Result. Not in
/// braces behind an element that owns memory, as in `Named{name, KILN_TRY(read())}`:
/// g++ and clang leak that element when they return. A GNU statement expression: g++
/// and clang both have it.
#define KILN_TRY(expression) KILN_TRY_NAMED(expression, KILN_TRY_NAME(__COUNTER__))

// A unique name for each use, so that uses can nest.
#define KILN_TRY_NAME(number) KILN_TRY_JOIN(kiln_try_result_, number)
#define KILN_TRY_JOIN(a, b) a##b
// NOLINTBEGIN(bugprone-macro-parentheses): a name that is declared takes none
#define KILN_TRY_NAMED(expression, name)                \
  ({                                                    \
    auto name = (expression);                           \
    if (!name)                                          \
      return ::tl::unexpected(std::move(name).error()); \
    ::kiln::detail::take_value(std::move(name));        \
  })
// NOLINTEND(bugprone-macro-parentheses)

namespace kiln::detail {

template <typename T>
T take_value(tl::expected<T, Error>&& result) {
  if constexpr (!std::is_void_v<T>)
    return *std::move(result);
}

}  // namespace kiln::detail

namespace kiln {

/// fail(ErrorCode::kIo, "{} is cut off", path)
template <typename First, typename... Values>
[[nodiscard]] tl::unexpected<Error> fail(ErrorCode code,
                                         fmt::format_string<First, Values...> message,
                                         First&& first, Values&&... values) {
  return fail(code, fmt::format(message, std::forward<First>(first),
                                std::forward<Values>(values)...));
}

/// The same for what the caller has to mend: refuse("rows is {}", rows).
template <typename First, typename... Values>
[[nodiscard]] tl::unexpected<Error> refuse(fmt::format_string<First, Values...> why,
                                           First&& first, Values&&... values) {
  return fail(ErrorCode::kInvalidArgument, why, std::forward<First>(first),
              std::forward<Values>(values)...);
}
[[nodiscard]] inline tl::unexpected<Error> refuse(std::string why) {
  return fail(ErrorCode::kInvalidArgument, std::move(why));
}

/// The result, with its object before the message of an error: "<object>: <message>".
template <typename T>
[[nodiscard]] Result<T> about(std::string_view object, Result<T> result) {
  if (!result)
    result.error().message.insert(0, std::string(object) + ": ");
  return result;
}

}  // namespace kiln
