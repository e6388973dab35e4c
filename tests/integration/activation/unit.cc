#include "tests/integration/activation/unit.h"

#include <utility>

#include "tests/support/tensors/element_types.h"

namespace kiln::activation_test {

Unit unit_of(std::string name, std::string dtype, bool has_bias, bool has_weight) {
  Unit unit;
  unit.name = std::move(name);
  unit.dtype = std::move(dtype);
  unit.gated = unit.name.ends_with("glu") || unit.name.starts_with("geglu");
  unit.clamped = unit.name == "clamped_swiglu";
  unit.act =
      unit.name.ends_with("gelu_tanh") || unit.name == "geglu_tanh" ? Act::kGeluTanh
      : unit.name.ends_with("gelu_erf") || unit.name == "geglu_erf" ? Act::kGeluErf
      : unit.name == "squared_relu"                                 ? Act::kSquaredRelu
      : unit.name == "reglu"                                        ? Act::kRelu
                                                                    : Act::kSilu;
  unit.has_bias = has_bias;
  unit.has_weight = unit.gated && has_weight;
  return unit;
}

ops::DType Unit::type() const {
  return test::dtype_of(dtype);
}

ops::ActivationKind Unit::kind() const {
  return act == Act::kGeluTanh  ? ops::ActivationKind::kGeluTanh
         : act == Act::kGeluErf ? ops::ActivationKind::kGeluErf
                                : ops::ActivationKind::kSquaredRelu;
}

ops::GluKind Unit::glu_kind() const {
  return clamped                 ? ops::GluKind::kClampedSwiglu
         : act == Act::kGeluTanh ? ops::GluKind::kGegluTanh
         : act == Act::kGeluErf  ? ops::GluKind::kGegluErf
         : act == Act::kRelu     ? ops::GluKind::kReglu
                                 : ops::GluKind::kSwiglu;
}

void PrintTo(const Unit& unit, std::ostream* out) {
  *out << name_of(unit);
}

std::string name_of(const Unit& unit) {
  return unit.name + "_" + unit.dtype + (unit.has_bias ? "_bias" : "") +
         (unit.has_weight ? "_weight" : "");
}

}  // namespace kiln::activation_test
