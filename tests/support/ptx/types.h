// The types of PTX (PTX ISA, "Fundamental Types" and "Packed Data Types").

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kiln::ptx {

enum class Kind : std::uint8_t {
  kPredicate,
  kBits,
  kUnsigned,
  kSigned,
  kFloat,   // IEEE 754: f16, f32, f64
  kBfloat,  // bf16
  kTensor,  // tf32, held as 32 bits
  kE4m3,
  kE5m2,
};

struct Type {
  Kind kind = Kind::kBits;
  std::uint8_t bits = 32;  // of an element
  std::uint8_t count = 1;  // 2 for f16x2
  friend bool operator==(const Type&, const Type&) = default;

  [[nodiscard]] constexpr std::size_t bytes() const {
    return kind == Kind::kPredicate ? 4 : std::size_t{bits} * count / 8;
  }
  [[nodiscard]] constexpr bool is_integer() const {
    return kind == Kind::kUnsigned || kind == Kind::kSigned || kind == Kind::kBits;
  }
  [[nodiscard]] constexpr bool is_float(unsigned width) const {
    return kind == Kind::kFloat && bits == width && count == 1;
  }
};

inline constexpr Type kPred{Kind::kPredicate, 1};
inline constexpr Type kB16{Kind::kBits, 16};
inline constexpr Type kB32{Kind::kBits, 32};
inline constexpr Type kB64{Kind::kBits, 64};
inline constexpr Type kU32{Kind::kUnsigned, 32};
inline constexpr Type kS32{Kind::kSigned, 32};
inline constexpr Type kU64{Kind::kUnsigned, 64};
inline constexpr Type kF32{Kind::kFloat, 32};
inline constexpr Type kF64{Kind::kFloat, 64};

/// "f32", "bf16x2" or "pred"; nullopt for what is no type.
[[nodiscard]] std::optional<Type> type_named(std::string_view name);

/// Bits as many as the type has.
[[nodiscard]] constexpr Type bits_of(Type type) {
  if (type.kind == Kind::kPredicate)
    return type;
  return {Kind::kBits, static_cast<std::uint8_t>(type.bits * type.count)};
}

}  // namespace kiln::ptx
