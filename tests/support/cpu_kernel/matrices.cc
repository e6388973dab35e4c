#include "tests/support/cpu_kernel/matrices.h"

#include <bit>
#include <vector>

namespace kiln_cpu {
namespace {

using Lanes = std::array<void*, kWarpLanes>;

constexpr std::size_t kRows = 16;
constexpr std::size_t kColumns = 8;
constexpr std::size_t kMostK = 16;

enum class Element : std::uint8_t { kF16, kBf16 };

float to_float(unsigned bits, Element element) {
  if (element == Element::kBf16) {
    return std::bit_cast<float>(bits << 16);
  }
  static const auto* const all = [] {
    auto* const floats = new std::vector<float>(1U << 16);
    for (unsigned each = 0; each < floats->size(); ++each) {
      (*floats)[each] = f16_to_float(each);
    }
    return floats;
  }();
  return (*all)[bits];
}

unsigned half(unsigned word, std::size_t at) {
  return at % 2 == 0 ? word & 0xffffU : word >> 16;
}

/// Of the matrix whose rows the lanes from `first` on have.
unsigned element(const Lanes& lanes, std::size_t first, std::size_t row,
                 std::size_t column) {
  const auto& its = *static_cast<const MatrixRow*>(lanes[first + row]);
  return half(its.bytes[column / 2], column);
}

void load(const Lanes& lanes, bool is_transposed) {
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    for (std::size_t matrix = 0; matrix < 4; ++matrix) {
      const std::size_t row = lane / 4;
      const std::size_t column = lane % 4 * 2;
      const std::size_t first = matrix * 8;
      const auto at = [&](std::size_t r, std::size_t c) {
        return is_transposed ? element(lanes, first, c, r)
                             : element(lanes, first, r, c);
      };
      static_cast<MatrixRow*>(lanes[lane])->words[matrix] =
          at(row, column) | at(row, column + 1) << 16;
    }
  }
}

/// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"; k8 has of
/// each the first half.
void multiply(const Lanes& lanes, std::size_t k_size, Element type) {
  std::array<std::array<float, kMostK>, kRows> a{};
  std::array<std::array<float, kColumns>, kMostK> b{};
  std::array<std::array<float, kColumns>, kRows> d{};
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    const auto& its = *static_cast<const MatrixFragments*>(lanes[lane]);
    const std::size_t group = lane / 4;
    const std::size_t pair = lane % 4 * 2;
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t k = 0; k < k_size; k += 8) {
        a[group][k + pair + i] = to_float(half(its.a[k / 4], i), type);
        a[group + 8][k + pair + i] = to_float(half(its.a[k / 4 + 1], i), type);
        b[k + pair + i][group] = to_float(half(its.b[k / 8], i), type);
      }
      d[group][pair + i] = its.d[i];
      d[group + 8][pair + i] = its.d[2 + i];
    }
  }
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t k = 0; k < k_size; ++k) {
      for (std::size_t column = 0; column < kColumns; ++column) {
        // The product is exact in a double, and the sum rounded twice is the float
        // nearest to it.
        const double product =
            static_cast<double>(a[row][k]) * static_cast<double>(b[k][column]);
        d[row][column] =
            static_cast<float>(static_cast<double>(d[row][column]) + product);
      }
    }
  }
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    float* const out = static_cast<MatrixFragments*>(lanes[lane])->d;
    for (std::size_t i = 0; i < 4; ++i) {
      out[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    }
  }
}

}  // namespace

bool is_of_matrices(Collective what) {
  return what >= Collective::kMatrixLoad;
}

void complete_matrices(Collective what, const Lanes& lanes) {
  switch (what) {
    case Collective::kMatrixLoad:
      return load(lanes, false);
    case Collective::kMatrixLoadTransposed:
      return load(lanes, true);
    case Collective::kMultiplyK8F16:
      return multiply(lanes, 8, Element::kF16);
    case Collective::kMultiplyK8Bf16:
      return multiply(lanes, 8, Element::kBf16);
    case Collective::kMultiplyK16F16:
      return multiply(lanes, 16, Element::kF16);
    default:
      return multiply(lanes, 16, Element::kBf16);
  }
}

}  // namespace kiln_cpu
