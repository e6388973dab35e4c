// Counts the fields of a struct, so that code that names each can say so.

#pragma once

#include <cstddef>

namespace kiln {

struct Anything {
  template <typename Type>
  operator Type() const;  // NOLINT(google-explicit-constructor): stands for any field
};

/// Of an aggregate without a base.
template <typename Struct, typename... Fields>
[[nodiscard]] consteval std::size_t field_count() {
  if constexpr (requires { Struct{Fields{}..., Anything{}}; })
    return field_count<Struct, Fields..., Anything>();
  else
    return sizeof...(Fields);
}

}  // namespace kiln
