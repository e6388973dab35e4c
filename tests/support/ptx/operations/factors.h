// The elements that matrices are multiplied of (PTX ISA, "Matrix Data-types").

#pragma once

#include <bit>
#include <optional>
#include <type_traits>

#include "tests/support/ptx/numbers.h"
#include "tests/support/ptx/types.h"

namespace kiln::ptx {

/// An element of a register, as the sums take it.
template <typename Real>
[[nodiscard]] Real element(std::uint64_t bits, Type type, unsigned index) {
  const std::uint64_t field =
      type.bits == 64
          ? bits
          : bits >> (index * type.bits) & ((std::uint64_t{1} << type.bits) - 1);
  if constexpr (std::is_integral_v<Real>) {
    const unsigned unused = (32U - type.bits) % 32U;
    const auto shifted = static_cast<std::uint32_t>(field) << unused;
    return type.kind == Kind::kSigned ? static_cast<std::int32_t>(shifted) >> unused
                                      : static_cast<std::int32_t>(shifted >> unused);
  } else {
    switch (type.kind) {
      case Kind::kE4m3:
        return static_cast<Real>(from_e4m3(static_cast<std::uint8_t>(field)));
      case Kind::kE5m2:
        return static_cast<Real>(from_e5m2(static_cast<std::uint8_t>(field)));
      case Kind::kBfloat:
        return to_float(Bfloat{static_cast<std::uint16_t>(field)});
      case Kind::kTensor:  // the low 13 bits are not looked at
        return std::bit_cast<float>(static_cast<std::uint32_t>(field) & 0xffffe000U);
      default:
        break;
    }
    if (type.bits == 16)
      return to_float(Half{static_cast<std::uint16_t>(field)});
    if (type.bits == 64)
      return static_cast<Real>(std::bit_cast<double>(field));
    return std::bit_cast<float>(static_cast<std::uint32_t>(field));
  }
}

/// A type of elements; s4 and u4 are none elsewhere.
[[nodiscard]] inline std::optional<Type> factor_named(std::string_view name) {
  if (name == "s4")
    return Type{Kind::kSigned, 4};
  if (name == "u4")
    return Type{Kind::kUnsigned, 4};
  return type_named(name);
}

}  // namespace kiln::ptx
