// The activations' definitions in double. A test gives both sides the same rounded
// inputs.

#pragma once

#include <cmath>

#include "tests/integration/activation/unit.h"

namespace kiln::activation_test {

/// What a clamped unit is given.
struct Limits {
  float alpha = 1;
  float limit = 0;
  float offset = 0;
};

struct Slope {
  double value;
  double terms;  // what it is the sum of, in magnitude
};

inline double sigmoid(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}

inline const double kRootTwoOverPi = std::sqrt(2 / std::acos(-1.0));

/// sqrt(2/pi) (u + 0.044715 u^3), twice.
inline double tanh_argument(double u) {
  return 2 * kRootTwoOverPi * (u + 0.044715 * u * u * u);
}

inline double value_of(Act act, double u, double alpha = 1) {
  switch (act) {
    case Act::kGeluTanh:
      // 0.5 (1 + tanh(x)) is sigmoid(2 x).
      return u * sigmoid(tanh_argument(u));
    case Act::kGeluErf:
      return u * 0.5 * std::erfc(-u / std::sqrt(2.0));
    case Act::kSquaredRelu:
      return u > 0 ? u * u : 0;
    case Act::kSilu:
      return u * sigmoid(alpha * u);
    case Act::kRelu:
      return u > 0 ? u : 0;
  }
  return 0;
}

inline Slope slope_of(Act act, double u, double alpha = 1) {
  const auto sum = [](double a, double b) {
    return Slope{a + b, std::fabs(a) + std::fabs(b)};
  };
  switch (act) {
    case Act::kGeluTanh: {
      const double x = tanh_argument(u);
      const double growth = 2 * kRootTwoOverPi * (1 + 3 * 0.044715 * u * u);
      return sum(sigmoid(x), u * sigmoid(x) * sigmoid(-x) * growth);
    }
    case Act::kGeluErf:
      return sum(0.5 * std::erfc(-u / std::sqrt(2.0)),
                 u * std::exp(-u * u / 2) * kRootTwoOverPi / 2);
    case Act::kSquaredRelu:
      return sum(u > 0 ? 2 * u : 0, 0);
    case Act::kSilu: {
      const double x = alpha * u;
      return sum(sigmoid(x), x * sigmoid(x) * sigmoid(-x));
    }
    case Act::kRelu:
      return sum(u > 0 ? 1 : 0, 0);
  }
  return {};
}

/// Of one element, without dy: act(g) * l * weight and its derivatives.
struct Element {
  double y;
  Slope by_input;  // or by the gate
  double by_linear;
  double by_weight;
};

inline Element element_of(const Unit& unit, const Limits& limits, double g, double l,
                          double weight) {
  if (!unit.gated)
    return {value_of(unit.act, g), slope_of(unit.act, g), 0, 0};
  const double alpha = unit.clamped ? limits.alpha : 1;
  double input = g;
  double factor = l;
  bool input_is_cut = false;
  bool factor_is_cut = false;
  if (unit.clamped) {
    const double most = limits.limit;
    input_is_cut = g > most;
    factor_is_cut = std::fabs(l) > most;
    input = std::fmin(g, most);
    factor = std::fmax(-most, std::fmin(l, most)) + limits.offset;
  }
  const double act = value_of(unit.act, input, alpha);
  Slope slope = slope_of(unit.act, input, alpha);
  const double scale = input_is_cut ? 0 : factor * weight;
  slope.value *= scale;
  slope.terms *= std::fabs(scale);
  return {act * factor * weight, slope, factor_is_cut ? 0 : act * weight, act * factor};
}

}  // namespace kiln::activation_test
