// Calls a function with each field of a struct.

#pragma once

#include <cstddef>
#include <type_traits>

#include "util/field_count.h"

namespace kiln {

/// `record`: an aggregate without a base, of at most 15 fields, const or not.
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

}  // namespace kiln
