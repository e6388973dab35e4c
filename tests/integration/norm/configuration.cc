#include "tests/integration/norm/configuration.h"

#include <fmt/format.h>

namespace kiln::norm_test {

using ops::DType;

std::string name_of(const Configuration& of) {
  const std::string cols = of.max_cols == 0 ? "any" : std::to_string(of.max_cols);
  return fmt::format("{}_{}_{}_{}{}{}{}{}", of.layer ? "layer" : "rms",
                     to_string(of.dtype), to_string(of.weight_dtype), cols,
                     of.residual ? "_residual" : "", of.option ? "_option" : "",
                     of.weight ? "" : "_no_weight",
                     of.from_output ? "_from_output" : "");
}

std::ostream& operator<<(std::ostream& out, const Configuration& configuration) {
  return out << name_of(configuration);
}

const std::vector<Configuration>& configurations() {
  static const auto* const all = [] {
    constexpr auto kF16 = DType::kF16;
    constexpr auto kBf16 = DType::kBf16;
    constexpr auto kF32 = DType::kF32;
    auto* const list = new std::vector<Configuration>;
    for (const bool layer : {true, false}) {
      const bool rounds = layer;  // a float has no rounding of llama's
      list->insert(list->end(), {{layer, kBf16, kBf16, 128, false, true},
                                 {layer, kBf16, kBf16, 512, true, false},
                                 {layer, kBf16, kBf16, 8192, true, true},
                                 {layer, kBf16, kF32, 0, false, true},
                                 {layer, kF16, kF32, 512, false, true},
                                 {layer, kF16, kF16, 8192, false, false},
                                 {layer, kF16, kF16, 0, true, true},
                                 {layer, kF32, kF32, 128, true, rounds},
                                 {layer, kF32, kF32, 512, false, false},
                                 {layer, kF32, kF32, 8192, false, rounds},
                                 {layer, kF32, kF32, 0, true, rounds}});
    }
    return list;
  }();
  return *all;
}

const std::vector<Configuration>& other_forms() {
  static const auto* const all = [] {
    constexpr auto kF16 = DType::kF16;
    constexpr auto kBf16 = DType::kBf16;
    constexpr auto kF32 = DType::kF32;
    auto* const list = new std::vector<Configuration>;
    for (const bool layer : {true, false}) {
      const bool bias = layer;  // no rounding of llama's is seen by a backward kernel
      list->insert(list->end(), {{layer, kBf16, kBf16, 128, true, false, false},
                                 {layer, kF16, kF16, 512, false, false, false},
                                 {layer, kF32, kF32, 8192, false, false, false},
                                 {layer, kBf16, kBf16, 0, true, false, false},
                                 {layer, kF32, kF32, 128, false, false, false, true},
                                 {layer, kBf16, kBf16, 0, false, false, false, true},
                                 {layer, kBf16, kBf16, 128, false, bias, true, true},
                                 {layer, kF32, kF32, 128, true, bias, true, true},
                                 {layer, kF16, kF32, 512, false, bias, true, true},
                                 {layer, kBf16, kBf16, 8192, true, bias, true, true},
                                 {layer, kF16, kF16, 8192, false, false, true, true},
                                 {layer, kBf16, kF32, 0, false, bias, true, true},
                                 {layer, kF32, kF32, 0, true, bias, true, true}});
    }
    return list;
  }();
  return *all;
}

std::vector<I64> row_lengths(const Configuration& configuration) {
  switch (configuration.max_cols) {
    case 128:
      return {1, 2, 3, 7, 8, 9, 31, 32, 33, 63, 64, 65, 96, 100, 127, 128};
    case 512:
      return {129, 192, 255, 256, 257, 384, 500, 511, 512};
    case 8192:
      return {513, 768, 1024, 4100, 8192};
    default:
      return {8193, 8200,
              configuration.dtype == DType::kF32 ? 12292
              : configuration.residual           ? 24584
                                                 : 49160};
  }
}

I64 aligned_length(const Configuration& configuration) {
  return configuration.max_cols == 128    ? 72
         : configuration.max_cols == 512  ? 384
         : configuration.max_cols == 8192 ? 1032
                                          : 8200;
}

I64 odd_length(const Configuration& configuration) {
  return aligned_length(configuration) - 7;
}

}  // namespace kiln::norm_test
