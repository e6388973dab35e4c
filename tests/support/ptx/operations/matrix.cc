// PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions": mma, ldmatrix,
// stmatrix, movmatrix. Each table of fragments there says the same of another width:
// with e elements a register, register q of lane l has of A the row l/4 (and 8 more
// where q is odd) and the columns e*(l%4) + 4e*(q/2) + 0..e-1; of B the rows
// e*(l%4) + 4e*q + 0..e-1 and the column l/4; of C and D the columns 2*(l%4) + 0..1.
// So the elements of a register of all lanes, one behind the other, are 8 rows of A, or
// 8 columns of B.

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/support/ptx/memory.h"
#include "tests/support/ptx/numbers.h"
#include "tests/support/ptx/operations/elementwise.h"
#include "tests/support/ptx/operations/factors.h"

namespace kiln::ptx {
namespace {

constexpr unsigned kColumns = 8;
constexpr unsigned kMostRows = 16;
constexpr unsigned kMostDepth = 64;

/// Not set where the shape has nothing.
template <typename Real>
struct Matrices {
  alignas(32) std::array<std::array<Real, kMostDepth>, kMostRows> a;
  alignas(32) std::array<std::array<Real, kColumns>, kMostDepth> b;
  alignas(32) std::array<std::array<Real, kColumns>, kMostRows> sums;
};

/// What the statement says, in the order of operands d, a, b, c.
struct Shape {
  unsigned rows = 16;
  unsigned depth = 16;
  Type d{};
  Type a{};
  Type b{};
  Type c{};
};

/// The elements of a register of all lanes, one behind the other.
template <typename Real, std::size_t kMost>
void read_elements(const Lanes& lanes, const Operand& operand, Type type,
                   std::array<Real, kMost>& to) {
  const std::size_t count = kLanes * std::max(32U / type.bits, 1U);
  if constexpr (std::is_same_v<Real, float>) {
    if (type.bits == 16 && type.kind == Kind::kBfloat) {
      const auto* const from = lanes.at<Bfloat>(operand);
      for (std::size_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
      return;
    }
    if (type.bits == 16) {
      const auto* const from = lanes.at<Half>(operand);
      for (std::size_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
      return;
    }
  }
  const std::size_t per_lane = count / kLanes;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const std::uint64_t bits = register_bits(lanes, operand, lane);
    for (unsigned i = 0; i < per_lane; ++i)
      to[lane * per_lane + i] = element<Real>(bits, type, i);
  }
}

constexpr std::size_t kMostElements = 256;  // of 4 bits

template <typename Real>
void gather_factors(const Lanes& lanes, std::span<const Operand> a,
                    std::span<const Operand> b, const Shape& shape,
                    Matrices<Real>& into) {
  std::array<Real, kMostElements> elements;
  const std::size_t width = 4U * std::max(32U / shape.a.bits, 1U);
  const std::size_t row_steps = shape.rows / 8;
  for (std::size_t q = 0; q < a.size(); ++q) {
    read_elements(lanes, a[q], shape.a, elements);
    for (std::size_t row = 0; row < 8; ++row)
      std::copy_n(&elements[row * width], width,
                  &into.a[row + 8 * (q % row_steps)][width * (q / row_steps)]);
  }
  const std::size_t depth = 4U * std::max(32U / shape.b.bits, 1U);
  for (std::size_t q = 0; q < b.size(); ++q) {
    read_elements(lanes, b[q], shape.b, elements);
    for (std::size_t k = 0; k < depth; ++k) {
      for (std::size_t column = 0; column < kColumns; ++column)
        into.b[q * depth + k][column] = elements[column * depth + k];
    }
  }
}

template <typename Real>
void multiply(Matrices<Real>& all, unsigned rows, unsigned depth) {
  for (unsigned row = 0; row < rows; ++row) {
    std::array<Real, kColumns> sums{};
    for (unsigned k = 0; k < depth; ++k) {
      const Real factor = all.a[row][k];
      for (unsigned column = 0; column < kColumns; ++column)
        sums[column] += factor * all.b[k][column];
    }
    all.sums[row] = sums;
  }
}
/// Each product is added to what is there, and rounded once, as the ISA says of
/// doubles.
void multiply(Matrices<double>& all, unsigned rows, unsigned depth) {
  for (unsigned row = 0; row < rows; ++row) {
    for (unsigned column = 0; column < kColumns; ++column) {
      for (unsigned k = 0; k < depth; ++k)
        all.sums[row][column] =
            std::fma(all.a[row][k], all.b[k][column], all.sums[row][column]);
    }
  }
}
#if defined(__x86_64__)
using Eight [[gnu::vector_size(32)]] = float;
static_assert(sizeof(Eight) == kColumns * sizeof(float));
// Four rows at a time, so that no sum waits for another. Products of 16 bits are exact,
// so it makes no difference whether they are rounded.
__attribute__((target("avx2,fma"))) void multiply_fast(Matrices<float>& all,
                                                       unsigned rows, unsigned depth) {
  for (unsigned row = 0; row < rows; row += 4) {
    std::array<Eight, 4> sums{};
    for (unsigned k = 0; k < depth; ++k) {
      Eight b;
      std::memcpy(&b, all.b[k].data(), sizeof b);
      for (unsigned i = 0; i < 4; ++i) sums[i] += all.a[row + i][k] * b;
    }
    std::memcpy(all.sums[row].data(), sums.data(), sizeof sums);
  }
}
void multiply(Matrices<float>& all, unsigned rows, unsigned depth) {
  static const bool has_fast =
      __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (has_fast)
    multiply_fast(all, rows, depth);
  else
    multiply<float>(all, rows, depth);
}
#endif

const Shape& shape_of(const Instruction& instruction);

// Operands: d..., a..., b..., c..., so many as targets say.
template <typename Real>
void multiply_matrices(Lanes& lanes, const Instruction& instruction) {
  const Shape& shape = shape_of(instruction);
  const std::span<const Operand> operands = instruction.operands;
  const auto d = operands.first(instruction.targets[1]);
  const auto a = operands.subspan(d.size(), instruction.targets[2]);
  const auto b = operands.subspan(d.size() + a.size(), instruction.targets[3]);
  const auto c = operands.subspan(d.size() + a.size() + b.size());
  Matrices<Real> all;
  gather_factors<Real>(lanes, a, b, shape, all);
  const unsigned per_c = shape.c.bits == 16 ? 2 : 1;
  const unsigned per_d = shape.d.bits == 16 ? 2 : 1;
  const auto add = [&] {
    for (unsigned i = 0; i < shape.rows / 4; ++i) {
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        Real& sum = all.sums[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
        if constexpr (std::is_same_v<Real, float>)
          sum += per_c == 1 ? lanes.at<float>(c[i])[lane]
                            : to_float(lanes.at<Half>(c[i / 2])[2 * lane + i % 2]);
        else if constexpr (std::is_same_v<Real, double>)
          sum += lanes.at<double>(c[i])[lane];
        else  // wraps
          sum = static_cast<Real>(static_cast<std::uint32_t>(sum) +
                                  lanes.at<std::uint32_t>(c[i])[lane]);
      }
    }
  };
  if constexpr (std::is_same_v<Real, double>) {
    all.sums = {};
    add();
    multiply(all, shape.rows, shape.depth);
  } else {
    multiply(all, shape.rows, shape.depth);
    add();
  }
  for (unsigned i = 0; i < shape.rows / 4; ++i) {
    const Operand& to = d[i / per_d];
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const Real value = all.sums[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
      if constexpr (!std::is_same_v<Real, float>)
        lanes.at<Real>(to)[lane] = value;
      else if (per_d == 2)
        lanes.at<Half>(to)[2 * lane + i % 2] = to_half(value);
      else
        lanes.at<float>(to)[lane] =
            value != value ? std::bit_cast<float>(kNan32) : value;
    }
  }
}

struct Named {
  std::string_view name;
  unsigned rows;
  unsigned depth;
};
constexpr auto kShapes = std::to_array<Named>({
    {"m8n8k4", 8, 4},
    {"m8n8k16", 8, 16},
    {"m8n8k32", 8, 32},
    {"m16n8k4", 16, 4},
    {"m16n8k8", 16, 8},
    {"m16n8k16", 16, 16},
    {"m16n8k32", 16, 32},
    {"m16n8k64", 16, 64},
});

void select_product_of_matrices(Decoder& decoder) {
  auto& made = decoder.made;
  decoder.take("sync");
  decoder.take("aligned");
  Shape shape;
  bool is_known = false;
  for (const Named& each : kShapes) {
    if (decoder.take(each.name)) {
      shape.rows = each.rows;
      shape.depth = each.depth;
      is_known = true;
    }
  }
  if (!is_known || !decoder.take("row") || !decoder.take("col"))
    decoder.refuse("matrices of this shape are not run here");
  if (decoder.take("satfinite"))
    decoder.refuse("saturated sums of matrices are not run here");
  const auto& modifiers = decoder.statement().modifiers;
  const std::array<Type*, 4> types{&shape.d, &shape.a, &shape.b, &shape.c};
  if (modifiers.size() < 4)
    decoder.refuse("it names no types");
  for (std::size_t i = 0; i < 4; ++i) {
    const std::string_view name = modifiers[modifiers.size() - 4 + i];
    const auto type = factor_named(name);
    if (!type)
      decoder.refuse("a type of its matrices is not run here");
    *types[i] = *type;
    decoder.take_named(name);
  }
  if (shape.rows == 8 && shape.depth == 4 && shape.a.bits != 64)
    decoder.refuse("products of Volta's shape are not run here");
  made.course = Course::kTogether;
  const std::size_t of_sums = shape.rows / 4U / (shape.c.bits == 16 ? 2U : 1U);
  const std::size_t of_d = shape.rows / 4U / (shape.d.bits == 16 ? 2U : 1U);
  const std::size_t of_a = shape.a.bits == 64
                               ? shape.rows * shape.depth / kLanes
                               : shape.rows * shape.depth * shape.a.bits / 32U / kLanes;
  const std::size_t of_b = shape.b.bits == 64
                               ? kColumns * shape.depth / kLanes
                               : kColumns * shape.depth * shape.b.bits / 32U / kLanes;
  const auto held = [](Type type) { return type.bits == 64 ? kB64 : kB32; };
  decoder.add_registers(decoder.argument(0), of_d, held(shape.d), true);
  decoder.add_registers(decoder.argument(1), of_a, held(shape.a), false);
  decoder.add_registers(decoder.argument(2), of_b, held(shape.b), false);
  decoder.add_registers(decoder.argument(3), of_sums, held(shape.c), false);
  made.targets = {0, static_cast<std::uint32_t>(of_d), static_cast<std::uint32_t>(of_a),
                  static_cast<std::uint32_t>(of_b)};
  made.shape = std::make_shared<const Shape>(shape);
  made.run = shape.d.is_integer() ? &multiply_matrices<std::int32_t>
             : shape.a.bits == 64 ? &multiply_matrices<double>
                                  : &multiply_matrices<float>;
}

const Shape& shape_of(const Instruction& instruction) {
  return *static_cast<const Shape*>(instruction.shape.get());
}

// Matrices of 8 rows of 16 bytes. Lane 8i + r has the address of row r of matrix i.
// Operands: the address, then a register a matrix. mode 1: transposed.
using Row = std::array<std::uint16_t, 8>;

Lanes with_addresses(const Lanes& lanes, std::size_t matrices) {
  Lanes some = lanes;
  some.mask = matrices >= 4 ? kAllLanes : (1U << (8 * matrices)) - 1;
  return some;
}
void load_matrices(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const std::size_t matrices = operands.size() - 1;
  const Reach reached = reach(with_addresses(lanes, matrices), instruction, operands[0],
                              sizeof(Row), Access::kRead);
  for (std::size_t matrix = 0; matrix < matrices; ++matrix) {
    std::array<Row, 8> rows;
    for (std::size_t row = 0; row < 8; ++row)
      std::memcpy(rows[row].data(), reached.at[8 * matrix + row], sizeof(Row));
    auto* const to = lanes.at<std::uint16_t>(operands[1 + matrix]);
    for (std::size_t row = 0; row < 8; ++row) {
      for (std::size_t column = 0; column < 8; ++column)
        to[8 * row + column] =
            instruction.mode == 1 ? rows[column][row] : rows[row][column];
    }
  }
}
/// A matrix of 8 x 8 elements from a register of each lane.
std::array<Row, 8> rows_of(const std::uint32_t* from, bool is_transposed) {
  std::array<Row, 8> rows;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned at = 2 * (lane % 4) + i;
      const auto value = static_cast<std::uint16_t>(from[lane] >> (16 * i));
      (is_transposed ? rows[at][lane / 4] : rows[lane / 4][at]) = value;
    }
  }
  return rows;
}
void store_matrices(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const std::size_t matrices = operands.size() - 1;
  const Reach reached = reach(with_addresses(lanes, matrices), instruction, operands[0],
                              sizeof(Row), Access::kWrite);
  for (std::size_t matrix = 0; matrix < matrices; ++matrix) {
    const auto rows =
        rows_of(lanes.at<std::uint32_t>(operands[1 + matrix]), instruction.mode == 1);
    for (std::size_t row = 0; row < 8; ++row)
      std::memcpy(reached.at[8 * matrix + row], rows[row].data(), sizeof(Row));
  }
}
template <bool kStores>
void select_matrices(Decoder& decoder) {
  auto& made = decoder.made;
  decoder.take("sync");
  decoder.take("aligned");
  if (!decoder.take("m8n8"))
    decoder.refuse("matrices of this shape are not run here");
  const auto number = decoder.take_one({"x1", "x2", "x4"});
  made.mode = decoder.take("trans") ? 1 : 0;
  const Space space = decoder.take_space();
  if (decoder.take_type().bits != 16)
    decoder.refuse("matrices of this type are not run here");
  made.course = Course::kTogether;
  decoder.address(decoder.argument(kStores ? 0 : 1), space);
  decoder.add_registers(decoder.argument(kStores ? 1 : 0),
                        std::size_t{1} << number.value_or(0), kB32, !kStores);
  made.run = kStores ? &store_matrices : &load_matrices;
}

void transpose(Lanes& lanes, const Instruction& instruction) {
  const auto rows = rows_of(lanes.at<std::uint32_t>(instruction.operands[1]), true);
  auto* const to = lanes.at<std::uint32_t>(instruction.operands[0]);
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const Row& row = rows[lane / 4];
    const unsigned at = 2 * (lane % 4);
    to[lane] = std::uint32_t{row[at + 1]} << 16U | row[at];
  }
}
void select_transpose(Decoder& decoder) {
  decoder.take_all();
  decoder.operands(kB32, {kB32});
  decoder.made.course = Course::kTogether;
  decoder.made.run = &transpose;
}

}  // namespace

std::span<const Operation> matrix_operations() {
  static constexpr auto kAll = std::to_array<Operation>({
      {"mma", &select_product_of_matrices},
      {"ldmatrix", &select_matrices<false>},
      {"stmatrix", &select_matrices<true>},
      {"movmatrix", &select_transpose},
  });
  return kAll;
}

}  // namespace kiln::ptx
