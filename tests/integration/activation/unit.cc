#include "tests/integration/activation/unit.h"

#include <algorithm>

#include "tests/support/cpu_kernel/run_plan.h"

namespace kiln_cpu {
// Generated: see CMakeLists.txt.
CpuKernels activation_unary_kernels();
CpuKernels activation_swiglu_kernels();
CpuKernels activation_gated_kernels();
}  // namespace kiln_cpu

namespace kiln::activation_test {
namespace {

using kiln_cpu::Variant;

Unit unit_of(const Variant& forward) {
  Unit unit;
  unit.name = forward.kernel().substr(0, forward.kernel().size() - 4);
  unit.dtype = forward.param("dtype");
  unit.gated = unit.name.ends_with("glu") || unit.name.starts_with("geglu");
  unit.clamped = unit.name == "clamped_swiglu";
  unit.act =
      unit.name.ends_with("gelu_tanh") || unit.name == "geglu_tanh" ? Act::kGeluTanh
      : unit.name.ends_with("gelu_erf") || unit.name == "geglu_erf" ? Act::kGeluErf
      : unit.name == "squared_relu"                                 ? Act::kSquaredRelu
      : unit.name == "reglu"                                        ? Act::kRelu
                                                                    : Act::kSilu;
  unit.has_bias = forward.param("bias") == "true";
  unit.has_weight = unit.gated && forward.param("weighted") == "true";
  return unit;
}

}  // namespace

ops::DType Unit::type() const {
  return dtype == "f16"    ? ops::DType::kF16
         : dtype == "bf16" ? ops::DType::kBf16
                           : ops::DType::kF32;
}

ops::ActivationKind Unit::kind() const {
  return act == Act::kGeluTanh  ? ops::ActivationKind::kGeluTanh
         : act == Act::kGeluErf ? ops::ActivationKind::kGeluErf
                                : ops::ActivationKind::kSquaredRelu;
}

ops::GluKind Unit::glu_kind() const {
  return clamped                 ? ops::GluKind::kClampedSwiGlu
         : act == Act::kGeluTanh ? ops::GluKind::kGeGluTanh
         : act == Act::kGeluErf  ? ops::GluKind::kGeGluErf
         : act == Act::kRelu     ? ops::GluKind::kReGlu
                                 : ops::GluKind::kSwiGlu;
}

void PrintTo(const Unit& unit, std::ostream* out) {
  *out << name_of(unit);
}

std::string name_of(const Unit& unit) {
  return unit.name + "_" + unit.dtype + (unit.has_bias ? "_bias" : "") +
         (unit.has_weight ? "_weight" : "");
}

const std::vector<Variant>& all_kernels() {
  static const auto* const all = new std::vector<Variant>(kiln_cpu::variants_of(
      {kiln_cpu::activation_unary_kernels(), kiln_cpu::activation_swiglu_kernels(),
       kiln_cpu::activation_gated_kernels()}));
  return *all;
}

const std::vector<Unit>& all_units() {
  static const auto* const all = [] {
    auto* const units = new std::vector<Unit>;
    for (const Variant& kernel : all_kernels()) {
      if (kernel.kernel().ends_with("_fwd"))
        units->push_back(unit_of(kernel));
    }
    return units;
  }();
  return *all;
}

const Unit& unit(std::string_view name) {
  return *std::ranges::find_if(all_units(),
                               [&](const Unit& each) { return name_of(each) == name; });
}

}  // namespace kiln::activation_test
