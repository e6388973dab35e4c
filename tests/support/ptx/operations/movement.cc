// PTX ISA, "Data Movement and Conversion Instructions", as far as registers alone take
// part: mov, prmt, cvta, isspacep. Shuffles are in exchange.cc, cvt in conversion.cc.

#include <array>

#include "tests/support/ptx/machine.h"
#include "tests/support/ptx/operations/elementwise.h"

namespace kiln::ptx {
namespace {

using Same = decltype([]<typename T>(T value) -> T { return value; });
void move_predicate(Lanes& lanes, const Instruction& instruction) {
  lanes.set_predicate(instruction.operands[0],
                      lanes.predicate(instruction.operands[1]));
}
void move_quad(Lanes& lanes, const Instruction& instruction) {
  using Quad = std::array<std::uint64_t, 2>;
  const auto* const from = lanes.at<Quad>(instruction.operands[1]);
  auto* const to = lanes.at<Quad>(instruction.operands[0]);
  for_each_lane(lanes.mask, [&](unsigned lane) { to[lane] = from[lane]; });
}

// Operands: the whole, then its parts, the lowest first.
template <bool kPacks>
void move_parts(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const Operand& whole = operands[0];
  const std::size_t size = whole.bytes / (operands.size() - 1);
  for_each_lane(lanes.mask, [&](unsigned lane) {
    std::array<std::byte, 16> value{};
    std::byte* const in_register =
        lanes.at<std::byte>(whole) + std::size_t{lane} * whole.bytes;
    if (!kPacks)
      std::memcpy(value.data(), in_register, whole.bytes);
    for (std::size_t i = 1; i < operands.size(); ++i) {
      if (operands[i].is_dropped())
        continue;
      std::byte* const part = lanes.at<std::byte>(operands[i]) + lane * size;
      std::byte* const in_whole = value.data() + (i - 1) * size;
      std::memcpy(kPacks ? in_whole : part, kPacks ? part : in_whole, size);
    }
    if (kPacks)
      std::memcpy(in_register, value.data(), whole.bytes);
  });
}

// The two forms that kernels have in their loops: two halves of 32 bits, two words of
// 64.
template <typename Whole, typename Part>
void pack_two(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  Whole* const to = lanes.at<Whole>(operands[0]);
  const Part* const low = lanes.at<Part>(operands[1]);
  const Part* const high = lanes.at<Part>(operands[2]);
  for_each_lane(lanes.mask, [&](unsigned lane) {
    to[lane] = static_cast<Whole>(Whole{low[lane]} |
                                  (Whole{high[lane]} << (8 * sizeof(Part))));
  });
}

void select_move(Decoder& decoder) {
  const Type type = bits_of(decoder.take_type());
  const auto& to = decoder.argument(0);
  const auto& from = decoder.argument(1);
  auto& operands = decoder.made.operands;
  const bool unpacks = to.kind == syntax::Argument::Kind::kVector;
  const bool packs = from.kind == syntax::Argument::Kind::kVector;
  if (unpacks || packs) {
    const auto parts = decoder.parts(unpacks ? to : from);
    if (parts.empty())
      decoder.refuse("it has no parts");
    const Type part{Kind::kBits, static_cast<std::uint8_t>(type.bits / parts.size())};
    operands.push_back(unpacks ? decoder.source(from, type)
                               : decoder.destination(to, type));
    for (const auto& each : parts)
      operands.push_back(unpacks ? decoder.destination(each, part)
                                 : decoder.source(each, part));
    const bool is_pair = packs && parts.size() == 2;
    decoder.made.run =
        is_pair && type.bits == 32   ? &pack_two<std::uint32_t, std::uint16_t>
        : is_pair && type.bits == 64 ? &pack_two<std::uint64_t, std::uint32_t>
        : packs                      ? &move_parts<true>
                                     : &move_parts<false>;
    return;
  }
  decoder.operands(type, {type});
  decoder.made.run = type == kPred      ? &move_predicate
                     : type.bits == 16  ? elementwise_of<Same, std::uint16_t, 1>()
                     : type.bits == 64  ? elementwise_of<Same, std::uint64_t, 1>()
                     : type.bits == 128 ? &move_quad
                                        : elementwise_of<Same, std::uint32_t, 1>();
}

// Each byte of the result is one of the eight of b:a, or that one's sign.
struct PickBytes {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t by) const {
    const std::uint64_t all = std::uint64_t{b} << 32U | a;
    std::uint32_t result = 0;
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned choice = by >> (4 * i) & 15U;
      std::uint32_t byte =
          static_cast<std::uint32_t>(all >> (8 * (choice & 7U))) & 0xffU;
      if ((choice & 8U) != 0)
        byte = (byte & 0x80U) != 0 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  }
};
/// prmt's modes with names: a selector of the default mode for each of c's low bits.
constexpr std::array<std::array<std::uint16_t, 4>, 6> kSelectors{{
    {0x3210, 0x4321, 0x5432, 0x6543},  // f4e
    {0x5670, 0x6701, 0x7012, 0x0123},  // b4e
    {0x0000, 0x1111, 0x2222, 0x3333},  // rc8
    {0x3210, 0x3211, 0x3222, 0x3333},  // ecl
    {0x0000, 0x1110, 0x2210, 0x3210},  // ecr
    {0x1010, 0x3232, 0x1010, 0x3232},  // rc16
}};
void pick_bytes_by_mode(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  auto* const to = lanes.at<std::uint32_t>(operands[0]);
  const auto* const a = lanes.at<std::uint32_t>(operands[1]);
  const auto* const b = lanes.at<std::uint32_t>(operands[2]);
  const auto* const by = lanes.at<std::uint32_t>(operands[3]);
  for_each_lane(lanes.mask, [&](unsigned lane) {
    to[lane] =
        PickBytes{}(a[lane], b[lane], kSelectors[instruction.mode][by[lane] & 3U]);
  });
}
void select_pick(Decoder& decoder) {
  decoder.take_type();
  const auto mode = decoder.take_one({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  decoder.operands(kB32, {kB32, kB32, kB32});
  decoder.made.mode = static_cast<std::uint8_t>(mode.value_or(0));
  decoder.made.run =
      mode ? &pick_bytes_by_mode : elementwise_of<PickBytes, std::uint32_t, 3>();
}

std::uint64_t window_of(Decoder& decoder) {
  constexpr std::array kWindows{std::uint64_t{0}, std::uint64_t{0}, kSharedWindow,
                                kLocalWindow, kParamWindow};
  const auto space = decoder.take_one({"global", "const", "shared", "local", "param"});
  if (!space)
    decoder.refuse("its space is not known");
  return kWindows[*space];
}

// An address of the space, from or to the generic one. Shared addresses may have 32
// bits.
void convert_address(Lanes& lanes, const Instruction& instruction) {
  const Operand& to = instruction.operands[0];
  const Operand& from = instruction.operands[1];
  const auto window = static_cast<std::uint64_t>(instruction.offset);
  const bool to_space = instruction.is_other;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    std::uint64_t address = 0;
    std::memcpy(&address, lanes.at<std::byte>(from) + std::size_t{lane} * from.bytes,
                from.bytes);
    if (window != 0)
      address = to_space ? address & ~kWindowMask : (address & ~kWindowMask) | window;
    std::memcpy(lanes.at<std::byte>(to) + std::size_t{lane} * to.bytes, &address,
                to.bytes);
  });
}
void select_address(Decoder& decoder) {
  decoder.made.is_other = decoder.take("to");
  decoder.made.offset = static_cast<std::int64_t>(window_of(decoder));
  const Type type = bits_of(decoder.take_type());
  decoder.operands(type, {type});
  decoder.made.run = &convert_address;
}

void is_in_space(Lanes& lanes, const Instruction& instruction) {
  const auto* const addresses = lanes.at<std::uint64_t>(instruction.operands[1]);
  const auto window = static_cast<std::uint64_t>(instruction.offset);
  std::uint32_t result = 0;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    result |= std::uint32_t{(addresses[lane] & kWindowMask) == window} << lane;
  });
  lanes.set_predicate(instruction.operands[0], result);
}
void select_is_in_space(Decoder& decoder) {
  decoder.made.offset = static_cast<std::int64_t>(window_of(decoder));
  decoder.operands(kPred, {kB64});
  decoder.made.run = &is_in_space;
}

}  // namespace

std::span<const Operation> movement_operations() {
  static constexpr auto kAll = std::to_array<Operation>({
      {"mov", &select_move},
      {"prmt", &select_pick},
      {"cvta", &select_address},
      {"isspacep", &select_is_in_space},
  });
  return kAll;
}

}  // namespace kiln::ptx
