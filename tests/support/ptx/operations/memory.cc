// PTX ISA, "Data Movement and Conversion Instructions": ld, ldu, st, prefetch and what
// else names memory but atomics (atomics.cc) and asynchronous copies (copies.cc).
// Orders and caches make no difference here: a launch has one thread.

#include "tests/support/ptx/memory.h"

#include <array>

#include "tests/support/ptx/operations/elementwise.h"

namespace kiln::ptx {
namespace {

using Quad = std::array<std::uint64_t, 2>;

/// Between a register and memory; the register may be wider.
template <bool kStores, typename In, typename Register>
void move(Register& in_register, std::byte* in_memory) {
  In value;
  if constexpr (kStores) {
    value = static_cast<In>(in_register);
    std::memcpy(in_memory, &value, sizeof value);
  } else {
    std::memcpy(&value, in_memory, sizeof value);
    // The sign is extended. NOLINTNEXTLINE(bugprone-signed-char-misuse)
    in_register = static_cast<Register>(value);
  }
}

// Operands: the address, then the registers, in the order of memory.
template <bool kStores, typename In, typename Register>
void access(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const std::size_t bytes = sizeof(In) * (operands.size() - 1);
  const Reach reached = reach(lanes, instruction, operands[0], bytes,
                              kStores ? Access::kWrite : Access::kRead);
  for (std::size_t i = 1; i < operands.size(); ++i) {
    if (operands[i].is_dropped())
      continue;
    auto* const registers = lanes.at<Register>(operands[i]);
    for_each_lane(lanes.mask, [&](unsigned lane) {
      move<kStores, In>(registers[lane], reached.at[lane] + (i - 1) * sizeof(In));
    });
  }
}

// The same with a parameter of a function, which lies in the frame. Operands: the
// region, then the registers.
template <bool kStores, typename In, typename Register>
void access_parameter(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const auto stride = static_cast<std::size_t>(instruction.targets[0]);
  for (std::size_t i = 1; i < operands.size(); ++i) {
    if (operands[i].is_dropped())
      continue;
    auto* const registers = lanes.at<Register>(operands[i]);
    std::byte* const in_memory =
        lanes.at<std::byte>(operands[0]) + instruction.offset + (i - 1) * sizeof(In);
    for_each_lane(lanes.mask, [&](unsigned lane) {
      move<kStores, In>(registers[lane], in_memory + lane * stride);
    });
  }
}

template <bool kStores>
struct Memory {
  template <typename In, typename Register>
  static constexpr Handler kHandler = &access<kStores, In, Register>;
};
template <bool kStores>
struct Parameter {
  template <typename In, typename Register>
  static constexpr Handler kHandler = &access_parameter<kStores, In, Register>;
};

// A register may be wider than what it holds.
template <typename Form, typename In>
Handler by_register(std::size_t bytes) {
  if (bytes <= sizeof(In))
    return Form::template kHandler<In, In>;
  using Wide = std::conditional_t<std::is_signed_v<In>, std::int64_t, std::uint64_t>;
  using Word = std::conditional_t<std::is_signed_v<In>, std::int32_t, std::uint32_t>;
  using Short = std::conditional_t<std::is_signed_v<In>, std::int16_t, std::uint16_t>;
  return bytes == 8   ? Form::template kHandler<In, Wide>
         : bytes == 4 ? Form::template kHandler<In, Word>
                      : Form::template kHandler<In, Short>;
}
template <typename Form>
Handler by_type(Type type, std::size_t register_bytes) {
  const bool is_signed = type.kind == Kind::kSigned;
  switch (type.bytes()) {
    case 1:
      return is_signed ? by_register<Form, std::int8_t>(register_bytes)
                       : by_register<Form, std::uint8_t>(register_bytes);
    case 2:
      return is_signed ? by_register<Form, std::int16_t>(register_bytes)
                       : by_register<Form, std::uint16_t>(register_bytes);
    case 4:
      return is_signed ? by_register<Form, std::int32_t>(register_bytes)
                       : by_register<Form, std::uint32_t>(register_bytes);
    case 8:
      return by_register<Form, std::uint64_t>(register_bytes);
    default:
      return Form::template kHandler<Quad, Quad>;
  }
}

// Constants lie in the process's memory, as global variables do.
Space memory_of(Space space) {
  return space == Space::kConst ? Space::kGlobal : space;
}

/// Registers of one width, which may be wider than the type; constants are as wide as
/// they. Returns the width in bytes.
std::size_t add_registers(Decoder& decoder, std::span<const syntax::Argument> parts,
                          Type type, bool stores) {
  const auto is_constant = [](const syntax::Argument& part) {
    return part.kind != syntax::Argument::Kind::kName &&
           part.kind != syntax::Argument::Kind::kNone;
  };
  auto& operands = decoder.made.operands;
  const std::size_t first = operands.size();
  std::size_t bytes = 0;
  decoder.may_be_wider = true;
  for (const auto& part : parts) {
    Operand& made = operands.emplace_back();
    if (!is_constant(part))
      made = stores ? decoder.source(part, bits_of(type))
                    : decoder.destination(part, type);
    if (made.is_dropped())
      continue;
    if (bytes != 0 && made.bytes != bytes)
      decoder.refuse("its registers differ in width");
    bytes = made.bytes;
  }
  bytes = bytes == 0 ? type.bytes() : bytes;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (is_constant(parts[i]))
      operands[first + i] = decoder.source(
          parts[i], bytes == type.bytes()
                        ? bits_of(type)
                        : Type{Kind::kBits, static_cast<std::uint8_t>(8 * bytes)});
  }
  return bytes;
}

template <bool kStores>
void select_access(Decoder& decoder) {
  decoder.take_hints();
  const Space space = decoder.take_space();
  const auto width = decoder.take_one({"v2", "v4", "v8"});
  const Type type = decoder.take_type();
  const auto& address = decoder.argument(kStores ? 0 : 1);
  const auto& registers = decoder.argument(kStores ? 1 : 0);
  const auto parts = decoder.parts(registers);
  if (parts.size() != (width ? std::size_t{2} << *width : 1))
    decoder.refuse("it has not as many registers as its vector");
  auto& made = decoder.made;
  const auto region = space == Space::kParam && !address.parts.empty()
                          ? decoder.region(address.parts[0].name)
                          : std::nullopt;
  if (region) {
    made.operands.push_back({.at = region->at, .bytes = 1});
    made.offset = static_cast<std::int64_t>(address.value);
    made.targets = {region->size};
    if (made.offset < 0 ||
        static_cast<std::uint64_t>(made.offset) + parts.size() * type.bytes() >
            region->size)
      decoder.refuse("it reaches beyond its parameter");
  } else {
    decoder.address(address, space);
    made.space = memory_of(space);
  }
  const std::size_t bytes = add_registers(decoder, parts, type, kStores);
  made.run = region ? by_type<Parameter<kStores>>(type, bytes)
                    : by_type<Memory<kStores>>(type, bytes);
}

// Hints alone: what they name is not looked at.
void do_nothing(Lanes&, const Instruction&) {}
void select_hint(Decoder& decoder) {
  decoder.take_all();
  decoder.made.run = &do_nothing;
}

// A policy of caches: any value.
void set_zero(Lanes& lanes, const Instruction& instruction) {
  set_all(lanes, instruction.operands[0], std::uint64_t{0});
}
void select_policy(Decoder& decoder) {
  decoder.take_all();
  decoder.made.operands = {decoder.destination(decoder.argument(0), kB64)};
  decoder.made.run = &set_zero;
}

}  // namespace

std::span<const Operation> memory_operations() {
  static constexpr auto kAll = std::to_array<Operation>({
      {"ld", &select_access<false>},
      {"ldu", &select_access<false>},
      {"st", &select_access<true>},
      {"prefetch", &select_hint},
      {"prefetchu", &select_hint},
      {"applypriority", &select_hint},
      {"discard", &select_hint},
      {"createpolicy", &select_policy},
      {"membar", &select_hint},
      {"fence", &select_hint},
      {"nanosleep", &select_hint},
      {"brkpt", &select_hint},
      {"pmevent", &select_hint},
      {"griddepcontrol", &select_hint},
      {"setmaxnreg", &select_hint},
  });
  return kAll;
}

}  // namespace kiln::ptx
