// PTX ISA, "SIMD Video Instructions": 2 or 4 numbers of a register. Masks, and
// selectors of parts, are refused.

#include <algorithm>

#include "tests/support/ptx/operations/elementwise.h"

namespace kiln::ptx {
namespace {

using Compute = std::int64_t (*)(std::int64_t, std::int64_t);
constexpr Compute kAdd = [](auto a, auto b) { return a + b; };
constexpr Compute kSubtract = [](auto a, auto b) { return a - b; };
constexpr Compute kAverage = [](auto a, auto b) {  // rounded away from 0
  return (a + b + (a + b >= 0 ? 1 : 0)) >> 1;
};
constexpr Compute kDistance = [](auto a, auto b) { return a < b ? b - a : a - b; };
constexpr Compute kLeast = [](auto a, auto b) { return std::min(a, b); };
constexpr Compute kGreatest = [](auto a, auto b) { return std::max(a, b); };

/// How a register is read or written.
struct Shape {
  unsigned count = 4;
  bool d_is_signed = false;
  bool a_is_signed = false;
  bool b_is_signed = false;
  bool adds = false;  // all results to c
  Compute compute = kAdd;
};

std::int64_t part_of(std::uint32_t word, unsigned index, unsigned bits,
                     bool is_signed) {
  const std::uint32_t part = word >> (index * bits) & 0xffffU >> (16 - bits);
  const unsigned unused = 32 - bits;
  return is_signed ? std::int64_t{static_cast<std::int32_t>(part << unused) >> unused}
                   : std::int64_t{part};
}

void run(Lanes& lanes, const Instruction& instruction) {
  const auto& shape = *static_cast<const Shape*>(instruction.shape.get());
  const auto& operands = instruction.operands;
  auto* const to = lanes.at<std::uint32_t>(operands[0]);
  const auto* const a = lanes.at<std::uint32_t>(operands[1]);
  const auto* const b = lanes.at<std::uint32_t>(operands[2]);
  const auto* const c = lanes.at<std::uint32_t>(operands[3]);
  const unsigned bits = shape.count == 2 ? 16 : 8;
  const std::int64_t one = 1;
  const std::int64_t most = (one << (shape.d_is_signed ? bits - 1 : bits)) - 1;
  const std::int64_t least = shape.d_is_signed ? -(one << (bits - 1)) : 0;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    std::uint32_t result = shape.adds ? c[lane] : 0;
    for (unsigned i = 0; i < shape.count; ++i) {
      std::int64_t value = shape.compute(part_of(a[lane], i, bits, shape.a_is_signed),
                                         part_of(b[lane], i, bits, shape.b_is_signed));
      if (instruction.saturates)
        value = std::clamp(value, least, most);
      const auto word = static_cast<std::uint32_t>(value);
      result = shape.adds ? result + word
                          : result | (word & ((1U << bits) - 1)) << (i * bits);
    }
    to[lane] = result;
  });
}

template <Compute kCompute, unsigned kCount>
void select_video(Decoder& decoder) {
  Shape shape{.count = kCount, .compute = kCompute};
  for (bool* const is_signed :
       {&shape.d_is_signed, &shape.a_is_signed, &shape.b_is_signed})
    *is_signed = decoder.take_type().kind == Kind::kSigned;
  auto& made = decoder.made;
  made.saturates = decoder.take("sat");
  shape.adds = decoder.take("add");
  if (shape.adds && made.saturates)
    decoder.refuse("a sum of its parts does not saturate");
  decoder.operands(kB32, {kB32, kB32, kB32});
  made.shape = std::make_shared<const Shape>(shape);
  made.run = &run;
}

}  // namespace

std::span<const Operation> video_operations() {
  static constexpr auto kAll = std::to_array<Operation>({
      {"vadd2", &select_video<kAdd, 2>},
      {"vadd4", &select_video<kAdd, 4>},
      {"vsub2", &select_video<kSubtract, 2>},
      {"vsub4", &select_video<kSubtract, 4>},
      {"vavrg2", &select_video<kAverage, 2>},
      {"vavrg4", &select_video<kAverage, 4>},
      {"vabsdiff2", &select_video<kDistance, 2>},
      {"vabsdiff4", &select_video<kDistance, 4>},
      {"vmin2", &select_video<kLeast, 2>},
      {"vmin4", &select_video<kLeast, 4>},
      {"vmax2", &select_video<kGreatest, 2>},
      {"vmax4", &select_video<kGreatest, 4>},
  });
  return kAll;
}

}  // namespace kiln::ptx
