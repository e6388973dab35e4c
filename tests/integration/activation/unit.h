// What is tested: an activation with its options, in one type, and the kernels of it
// that are compiled for the CPU.

#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "kiln/ops/activation.h"
#include "tests/support/cpu_kernel/variant.h"

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

[[nodiscard]] const std::vector<kiln_cpu::Variant>& all_kernels();
/// One for each forward kernel of all_kernels(); its backward kernel is there too.
[[nodiscard]] const std::vector<Unit>& all_units();
template <typename Predicate>
std::vector<Unit> units_where(Predicate predicate) {
  std::vector<Unit> some;
  for (const Unit& unit : all_units()) {
    if (predicate(unit))
      some.push_back(unit);
  }
  return some;
}
/// The one of that name, type and options. It is there.
[[nodiscard]] const Unit& unit(std::string_view name);

}  // namespace kiln::activation_test
