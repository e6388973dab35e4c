// PTX ISA, "Matrix multiply-accumulate operation using wmma instructions". Which lane
// holds which elements is nobody's business there, so here they lie one behind the
// other: element i of lane l is number l*n + i of the matrix, counted by rows, for n
// elements a lane. Some matrices are held more than once.

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

#include "tests/support/ptx/memory.h"
#include "tests/support/ptx/operations/elementwise.h"
#include "tests/support/ptx/operations/factors.h"

namespace kiln::ptx {
namespace {

// No shape is empty, and no type has no bits.
// NOLINTBEGIN(clang-analyzer-core.DivideZero)
struct WmmaFragment {
  unsigned rows = 16;
  unsigned columns = 16;
  Type type{};
  bool is_by_columns = false;  // in memory
  bool is_sum = false;         // C or D

  [[nodiscard]] unsigned elements() const { return rows * columns; }
  [[nodiscard]] unsigned in_register() const { return std::max(32U / type.bits, 1U); }
  [[nodiscard]] std::size_t registers() const {
    // A and B of f16 have 8 of them in each shape.
    return type.is_float(16) && !is_sum ? 8 : elements() / kLanes / in_register();
  }
  [[nodiscard]] unsigned in_lane() const {
    return static_cast<unsigned>(registers()) * in_register();
  }
  [[nodiscard]] unsigned number(unsigned lane, unsigned i) const {
    return (lane * in_lane() + i) % elements();
  }
};
// NOLINTEND(clang-analyzer-core.DivideZero)

/// What wmma.mma multiplies.
struct Product {
  WmmaFragment d{};
  WmmaFragment a{};
  WmmaFragment b{};
  WmmaFragment c{};
  enum class Kind : std::uint8_t { kSum, kXor, kAnd } kind = Kind::kSum;  // of b1
};

template <typename T>
const T& shape_of(const Instruction& instruction) {
  return *static_cast<const T*>(instruction.shape.get());
}

void set_register_bits(const Lanes& lanes, const Operand& operand, unsigned lane,
                       std::uint64_t bits) {
  if (operand.bytes == 8)
    lanes.at<std::uint64_t>(operand)[lane] = bits;
  else
    lanes.at<std::uint32_t>(operand)[lane] = static_cast<std::uint32_t>(bits);
}

/// All lanes have one address and one stride. Else the ISA says nothing.
void require_one_matrix(const Lanes& lanes, const Instruction& instruction) {
  const auto differ = [&](const Operand& operand) {
    for (unsigned lane = 1; lane < kLanes && !operand.is_dropped(); ++lane) {
      if (register_bits(lanes, operand, lane) != register_bits(lanes, operand, 0))
        return true;
    }
    return false;
  };
  if (differ(instruction.operands[0]) || differ(instruction.operands[1]))
    throw Fault{kIllegalInstruction,
                "not all lanes of the warp have the same matrix: " +
                    describe(lanes.block->grid.program, *instruction.statement)};
}

// ---- wmma.load, wmma.store --------------------------------------------------------

/// Where the elements of a matrix lie.
class InMemory {
 public:
  InMemory(const Lanes& lanes, const Instruction& instruction, Access access)
      : lanes_(lanes),
        instruction_(instruction),
        access_(access),
        fragment_(shape_of<WmmaFragment>(instruction)) {
    const auto& operands = instruction.operands;
    require_one_matrix(lanes, instruction);
    base_ = register_bits(lanes, operands[0], 0) +
            static_cast<std::uint64_t>(instruction.offset);
    stride_ = operands[1].is_dropped()
                  ? line()
                  : *lanes.at<std::uint32_t>(operands[1]);  // in elements
    check_lines();
  }
  /// The element of that number, and in it the first bit.
  [[nodiscard]] std::pair<std::byte*, unsigned> find(unsigned lane,
                                                     unsigned number) const {
    const unsigned row = number / fragment_.columns;
    const unsigned column = number % fragment_.columns;
    const std::uint64_t bit =
        fragment_.is_by_columns
            ? (std::uint64_t{column} * stride_ + row) * fragment_.type.bits
            : (std::uint64_t{row} * stride_ + column) * fragment_.type.bits;
    return {reach_one(lanes_, instruction_,
                      {.lane = lane,
                       .space = instruction_.space,
                       .at = base_ + bit / 8,
                       .bytes = std::max<std::size_t>(fragment_.type.bits / 8U, 1),
                       .access = access_}),
            bit % 8};
  }

 private:
  [[nodiscard]] unsigned line() const {
    return fragment_.is_by_columns ? fragment_.rows : fragment_.columns;
  }
  // The ISA asks that each row or column is aligned to a lane's part of the matrix;
  // CUDA's guide permits lines that are multiples of 16 bytes.
  void check_lines() const {
    const std::size_t unit = std::min<std::size_t>(
        {16, std::size_t{fragment_.in_lane()} * fragment_.type.bits / 8U,
         std::size_t{line()} * fragment_.type.bits / 8U});
    for (unsigned i = 0; i < fragment_.elements() / line(); ++i)
      require_aligned(
          lanes_, instruction_,
          {.space = instruction_.space,
           .at = base_ + std::uint64_t{i} * stride_ * fragment_.type.bits / 8U,
           .bytes = unit,
           .access = access_});
  }

  const Lanes& lanes_;
  const Instruction& instruction_;
  Access access_;
  const WmmaFragment& fragment_;
  std::uint64_t base_ = 0;
  std::uint64_t stride_ = 0;
};

// Operands: the address, the stride (or dropped), the registers.
void load(Lanes& lanes, const Instruction& instruction) {
  const auto& fragment = shape_of<WmmaFragment>(instruction);
  const std::span<const Operand> registers = std::span(instruction.operands).subspan(2);
  const InMemory memory(lanes, instruction, Access::kRead);
  const std::size_t bytes = std::max<std::size_t>(fragment.type.bits / 8U, 1);
  const std::uint64_t ones = ~std::uint64_t{0} >> (64U - fragment.type.bits);
  for_each_lane(lanes.mask, [&](unsigned lane) {
    for (std::size_t i = 0; i < registers.size(); ++i) {
      std::uint64_t bits = 0;
      for (unsigned part = 0; part < fragment.in_register(); ++part) {
        const auto number = static_cast<unsigned>(i) * fragment.in_register() + part;
        const auto [at, first] = memory.find(lane, fragment.number(lane, number));
        std::uint64_t element = 0;
        std::memcpy(&element, at, bytes);
        bits |= (element >> first & ones) << (part * fragment.type.bits);
      }
      set_register_bits(lanes, registers[i], lane, bits);
    }
  });
}

void store(Lanes& lanes, const Instruction& instruction) {
  const auto& fragment = shape_of<WmmaFragment>(instruction);
  const std::span<const Operand> registers = std::span(instruction.operands).subspan(2);
  const InMemory memory(lanes, instruction, Access::kWrite);
  for_each_lane(lanes.mask, [&](unsigned lane) {
    for (unsigned i = 0; i < fragment.in_lane(); ++i) {
      const std::uint64_t bits =
          register_bits(lanes, registers[i / fragment.in_register()], lane) >>
          (i % fragment.in_register() * fragment.type.bits);
      std::memcpy(memory.find(lane, fragment.number(lane, i)).first, &bits,
                  fragment.type.bits / 8U);
    }
  });
}

// ---- wmma.mma ---------------------------------------------------------------------

template <typename Real>
std::vector<Real> gather(const Lanes& lanes, std::span<const Operand> registers,
                         const WmmaFragment& fragment) {
  std::vector<Real> all(fragment.elements());
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (unsigned i = 0; i < fragment.in_lane(); ++i)
      all[fragment.number(lane, i)] = element<Real>(
          register_bits(lanes, registers[i / fragment.in_register()], lane),
          fragment.type, i % fragment.in_register());
  }
  return all;
}

template <typename Real>
std::uint64_t bits_of_sum(Real value, Type type) {
  if constexpr (std::is_same_v<Real, double>)
    return std::bit_cast<std::uint64_t>(value);
  else if constexpr (std::is_same_v<Real, float>)
    return type.bits == 16 ? to_half(value).bits
                           : std::bit_cast<std::uint32_t>(canonical(value));
  else
    return static_cast<std::uint32_t>(value);
}

/// Of doubles each is rounded, as the ISA says.
template <typename Real>
Real with_product(Real sum, Real a, Real b, Product::Kind kind) {
  if constexpr (std::is_same_v<Real, double>)
    return std::fma(a, b, sum);
  else if constexpr (std::is_integral_v<Real>)
    return sum + (kind == Product::Kind::kXor   ? a ^ b
                  : kind == Product::Kind::kAnd ? a & b
                                                : a * b);
  else
    return sum + a * b;
}

// Operands: the registers of d, a, b, c. Real of integers: 64 bits, for what saturates.
template <typename Real>
void multiply(Lanes& lanes, const Instruction& instruction) {
  const auto& product = shape_of<Product>(instruction);
  std::span<const Operand> left = instruction.operands;
  const auto take = [&](const WmmaFragment& fragment) {
    const auto taken = left.first(fragment.registers());
    left = left.subspan(taken.size());
    return taken;
  };
  const auto d = take(product.d);
  const auto a = gather<Real>(lanes, take(product.a), product.a);
  const auto b = gather<Real>(lanes, take(product.b), product.b);
  auto sums = gather<Real>(lanes, take(product.c), product.c);
  const unsigned columns = product.d.columns;
  for (unsigned row = 0; row < product.d.rows; ++row) {
    for (unsigned column = 0; column < columns; ++column) {
      Real& all = sums[row * columns + column];
      Real sum = std::is_same_v<Real, double> ? all : 0;
      for (unsigned k = 0; k < product.a.columns; ++k)
        sum = with_product(sum, a[row * product.a.columns + k], b[k * columns + column],
                           product.kind);
      all = std::is_same_v<Real, double> ? sum : all + sum;
      if constexpr (std::is_integral_v<Real>) {
        using Limits = std::numeric_limits<std::int32_t>;
        if (instruction.saturates)
          all = std::clamp<Real>(all, Limits::min(), Limits::max());
      }
    }
  }
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (std::size_t i = 0; i < d.size(); ++i) {
      std::uint64_t bits = 0;
      for (unsigned part = 0; part < product.d.in_register(); ++part) {
        const auto number = static_cast<unsigned>(i) * product.d.in_register() + part;
        bits |= bits_of_sum(sums[product.d.number(lane, number)], product.d.type)
                << (part * product.d.type.bits);
      }
      set_register_bits(lanes, d[i], lane, bits);
    }
  }
}

// ---- What the statements say ------------------------------------------------------

struct Shape {
  std::string_view name;
  unsigned m, n, k;
};
Shape take_shape(Decoder& decoder) {
  static constexpr auto kShapes = std::to_array<Shape>({
      {"m16n16k16", 16, 16, 16},
      {"m8n32k16", 8, 32, 16},
      {"m32n8k16", 32, 8, 16},
      {"m16n16k8", 16, 16, 8},
      {"m8n8k4", 8, 8, 4},
      {"m8n8k32", 8, 8, 32},
      {"m8n8k128", 8, 8, 128},
  });
  for (const Shape& each : kShapes) {
    if (decoder.take(each.name))
      return each;
  }
  decoder.refuse("matrices of this shape are not run here");
}

/// b1 is none but here.
std::optional<Type> element_named(std::string_view name) {
  return name == "b1" ? Type{Kind::kBits, 1} : factor_named(name);
}

void add_registers(Decoder& decoder, const syntax::Argument& argument,
                   const WmmaFragment& fragment, bool is_result) {
  decoder.add_registers(argument, fragment.registers(),
                        fragment.type.bits == 64 ? kB64 : kB32, is_result);
}

void select_copy(Decoder& decoder, bool stores) {
  auto& made = decoder.made;
  const auto which =
      stores ? decoder.take_one({"d"}) : decoder.take_one({"a", "b", "c"});
  if (!which)
    decoder.refuse("it names no matrix");
  WmmaFragment fragment;
  fragment.is_sum = stores || *which == 2;
  fragment.is_by_columns = decoder.take_one({"row", "col"}) == 1;
  const Shape shape = take_shape(decoder);
  fragment.rows = !stores && *which == 1 ? shape.k : shape.m;
  fragment.columns = !stores && *which == 0 ? shape.k : shape.n;
  made.space = decoder.take_space();
  const std::string_view name = decoder.statement().modifiers.back();
  const auto type = element_named(name);
  if (!type)
    decoder.refuse("a type of its matrices is not run here");
  decoder.take_named(name);
  fragment.type = *type;
  decoder.address(decoder.argument(stores ? 0 : 1), made.space);
  made.operands.push_back(
      decoder.count() > 2 ? decoder.source(decoder.argument(2), kU32) : Operand{});
  add_registers(decoder, decoder.argument(stores ? 1 : 0), fragment, !stores);
  made.shape = std::make_shared<const WmmaFragment>(fragment);
  made.run = stores ? &store : &load;
}

// wmma.mma.d.c has factors of f16, other forms name d, a, b and c.
void select_multiplication(Decoder& decoder) {
  auto& made = decoder.made;
  Product product;
  if (const auto of_bits = decoder.take_one({"xor", "and"})) {
    decoder.take_named("popc");
    product.kind = *of_bits == 0 ? Product::Kind::kXor : Product::Kind::kAnd;
  }
  decoder.take_one({"row", "col"});  // of a, b: told when they were loaded
  decoder.take_one({"row", "col"});
  const Shape shape = take_shape(decoder);
  made.saturates = decoder.take("satfinite");
  decoder.take("rn");  // of doubles, the default
  std::vector<Type> types;
  for (const std::string_view each : decoder.statement().modifiers) {
    if (const auto type = element_named(each)) {
      types.push_back(*type);
      decoder.take(each);
    }
  }
  constexpr Type kHalf{Kind::kFloat, 16};
  if (types.size() == 2)
    types = {types[0], kHalf, kHalf, types[1]};
  else if (types.size() != 4)
    decoder.refuse("it has not the types of four matrices");
  const std::array<WmmaFragment*, 4> all{&product.d, &product.a, &product.b,
                                         &product.c};
  product.d = product.c = {.rows = shape.m, .columns = shape.n, .is_sum = true};
  product.a = {.rows = shape.m, .columns = shape.k};
  product.b = {.rows = shape.k, .columns = shape.n};
  for (std::size_t i = 0; i < all.size(); ++i) all[i]->type = types[i];
  if (made.saturates && !product.d.type.is_integer())
    decoder.refuse("saturated sums of floats are not run here");
  for (std::size_t i = 0; i < all.size(); ++i)
    add_registers(decoder, decoder.argument(i), *all[i], i == 0);
  made.shape = std::make_shared<const Product>(product);
  made.run = product.d.type.is_integer() ? &multiply<std::int64_t>
             : product.a.type.bits == 64 ? &multiply<double>
                                         : &multiply<float>;
}

void select_wmma(Decoder& decoder) {
  const auto what = decoder.take_one({"load", "store", "mma"});
  decoder.take("sync");
  decoder.take("aligned");
  decoder.made.course = Course::kTogether;
  if (what == 2)
    select_multiplication(decoder);
  else if (what)
    select_copy(decoder, *what == 1);
  else
    decoder.refuse("it is none of load, store and mma");
}

}  // namespace

std::span<const Operation> fragment_operations() {
  static constexpr auto kAll = std::to_array<Operation>({{"wmma", &select_wmma}});
  return kAll;
}

}  // namespace kiln::ptx
