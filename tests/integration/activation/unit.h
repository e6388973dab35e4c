// What is tested: an activation with its options, in one type.

#pragma once

#include <ostream>
#include <string>

#include "kiln/ops/activation.h"

namespace kiln::activation_test {

enum class Act : std::uint8_t { kGeluTanh, kGeluErf, kSquaredRelu, kSilu, kRelu };

struct Unit {
  std::string name;   // "swiglu"
  std::string dtype;  // "bf16"
  Act act = Act::kSilu;
  bool gated = false;
  bool clamped = false;
  bool has_bias = false;
  bool has_weight = false;

  [[nodiscard]] ops::DType type() const;
  [[nodiscard]] ops::ActivationKind kind() const;
  [[nodiscard]] ops::GluKind glu_kind() const;
  /// Of the inputs, and of the bias: 2 where it is gated.
  [[nodiscard]] int halves() const { return gated ? 2 : 1; }
};

void PrintTo(const Unit& unit, std::ostream* out);
/// "swiglu_bf16_bias"
[[nodiscard]] std::string name_of(const Unit& unit);
/// The same for INSTANTIATE_TEST_SUITE_P.
inline constexpr auto kNameOf = [](const auto& info) { return name_of(info.param); };

/// Of the kernels `name`_fwd and `name`_bwd.
[[nodiscard]] Unit unit_of(std::string name, std::string dtype, bool has_bias,
                           bool has_weight);

}  // namespace kiln::activation_test
