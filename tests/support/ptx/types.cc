#include "tests/support/ptx/types.h"

#include <array>
#include <utility>

namespace kiln::ptx {

std::optional<Type> type_named(std::string_view name) {
  static constexpr auto kTypes = std::to_array<std::pair<std::string_view, Type>>({
      {"pred", kPred},
      {"b8", {Kind::kBits, 8}},
      {"b16", kB16},
      {"b32", kB32},
      {"b64", kB64},
      {"b128", {Kind::kBits, 128}},
      {"u8", {Kind::kUnsigned, 8}},
      {"u16", {Kind::kUnsigned, 16}},
      {"u32", kU32},
      {"u64", kU64},
      {"s8", {Kind::kSigned, 8}},
      {"s16", {Kind::kSigned, 16}},
      {"s32", {Kind::kSigned, 32}},
      {"s64", {Kind::kSigned, 64}},
      {"u16x2", {Kind::kUnsigned, 16, 2}},
      {"s16x2", {Kind::kSigned, 16, 2}},
      {"f16", {Kind::kFloat, 16}},
      {"f16x2", {Kind::kFloat, 16, 2}},
      {"f32", kF32},
      {"f32x2", {Kind::kFloat, 32, 2}},
      {"f64", kF64},
      {"bf16", {Kind::kBfloat, 16}},
      {"bf16x2", {Kind::kBfloat, 16, 2}},
      {"tf32", {Kind::kTensor, 32}},
      {"e4m3", {Kind::kE4m3, 8}},
      {"e5m2", {Kind::kE5m2, 8}},
      {"e4m3x2", {Kind::kE4m3, 8, 2}},
      {"e5m2x2", {Kind::kE5m2, 8, 2}},
  });
  for (const auto& [known, type] : kTypes) {
    if (known == name)
      return type;
  }
  return std::nullopt;
}

}  // namespace kiln::ptx
