// Compares a struct of kiln/c.h with its C++ struct at compile time.

#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace kiln::c {

/// The bytes before the first field in C.
inline constexpr std::size_t kBehindSize = sizeof(std::size_t);
/// For a struct without a size, inside another: it never changes. A field that is added
/// to its C++ struct goes to the end of the outer C struct, and the call copies it from
/// there; until then KILN_SAME_FIELDS does not compile.
inline constexpr std::size_t kNested = 0;

/// The same type, or an enumeration or a struct of the same size.
template <typename InC, typename InCpp>
constexpr bool kSameType = std::is_same_v<InC, InCpp> ||
                           (sizeof(InC) == sizeof(InCpp) &&
                            (std::is_enum_v<InCpp> || std::is_class_v<InCpp>));

struct Anything {
  template <typename Type>
  operator Type() const;  // NOLINT(google-explicit-constructor): stands for any field
};
template <typename Struct, typename... Fields>
consteval std::size_t field_count() {
  if constexpr (requires { Struct{Fields{}..., Anything{}}; })
    return field_count<Struct, Fields..., Anything>();
  else
    return sizeof...(Fields);
}

/// Copies as many fields of the C++ struct as the caller's struct, which passed
/// check_struct(), has. KILN_SAME_FIELDS says that they are the same.
template <typename InC, typename InCpp>
void write_fields(InC* to, const InCpp& from) {
  std::memcpy(reinterpret_cast<std::byte*>(to) + kBehindSize, &from,
              to->struct_size - kBehindSize);
}

// KILN_SAME_FIELDS(InC, InCpp, front, field...): asserts that the fields are all fields
// of InCpp, and that InC has them with the same types, each `front` bytes farther on.
#define KILN_SAME_FIELDS(InC, InCpp, front, ...)                                      \
  static_assert(sizeof(InC) == sizeof(InCpp) + (front));                              \
  static_assert(field_count<InCpp>() == 0 KILN_EXPAND(KILN_EACH(KILN_ONE, InC, InCpp, \
                                                                front, __VA_ARGS__)), \
                #InCpp " has a field that " #InC " has not");                         \
  KILN_EXPAND(KILN_EACH(KILN_SAME_FIELD, InC, InCpp, front, __VA_ARGS__))
#define KILN_ONE(InC, InCpp, front, field) \
  +1  // NOLINT(bugprone-macro-parentheses): a term of a sum
#define KILN_SAME_FIELD(InC, InCpp, front, field)                          \
  static_assert(offsetof(InC, field) == offsetof(InCpp, field) + (front)); \
  static_assert(kSameType<decltype(InC::field), decltype(InCpp::field)>);
// Emulates recursion in the preprocessor: each of 27 scans expands KILN_EACH once.
#define KILN_EACH(what, InC, InCpp, front, field, ...) \
  what(InC, InCpp, front, field) __VA_OPT__(           \
      KILN_EACH_AGAIN KILN_PARENTHESES(what, InC, InCpp, front, __VA_ARGS__))
#define KILN_EACH_AGAIN() KILN_EACH
#define KILN_PARENTHESES ()
#define KILN_EXPAND(...) KILN_EXPAND_9(KILN_EXPAND_9(KILN_EXPAND_9(__VA_ARGS__)))
#define KILN_EXPAND_9(...) KILN_EXPAND_3(KILN_EXPAND_3(KILN_EXPAND_3(__VA_ARGS__)))
#define KILN_EXPAND_3(...) KILN_EXPAND_1(KILN_EXPAND_1(KILN_EXPAND_1(__VA_ARGS__)))
#define KILN_EXPAND_1(...) __VA_ARGS__

}  // namespace kiln::c
