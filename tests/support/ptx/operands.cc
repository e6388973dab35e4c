// From names, numbers and addresses to places in a frame.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "tests/support/ptx/decoder.h"
#include "tests/support/ptx/machine.h"

namespace kiln::ptx {

using syntax::Argument;

namespace {

/// A clock counts the launch's instructions.
template <typename T>
void read_clock(Lanes& lanes, const Instruction& instruction) {
  const std::uint64_t now = lanes.block->grid.report.instructions;
  set_all(lanes, instruction.operands[0], static_cast<T>(now >> instruction.mode));
}

// Room for vectors of the machine.
constexpr std::size_t kSlotAlignment = 32;

}  // namespace

std::uint32_t Decoder::reserve(std::size_t bytes) {
  const std::uint32_t at = function_.register_bytes;
  function_.register_bytes +=
      static_cast<std::uint32_t>(rounded_up(bytes, kSlotAlignment));
  return at;
}

std::uint32_t Decoder::add_constant(std::size_t bytes) {
  const std::size_t at = function_.constants.size();
  function_.constants.resize(at + rounded_up(bytes, kSlotAlignment));
  return function_.register_bytes + static_cast<std::uint32_t>(at);
}

std::size_t register_bytes(Type type) {
  return type == kPred ? 4 : type.bytes() * kLanes;
}

void Decoder::declare(const syntax::Variable& variable, Names& names) {
  Symbol symbol{.type = variable.type, .repeats = variable.repeats};
  switch (variable.space) {
    case Space::kRegister: {
      const std::size_t each =
          rounded_up(register_bytes(variable.type), kSlotAlignment);
      symbol.size = static_cast<std::uint32_t>(each);
      symbol.at = reserve(each * std::max(variable.repeats, 1U));
      break;
    }
    case Space::kParam:
      symbol.kind = Symbol::Kind::kRegion;
      symbol.size = static_cast<std::uint32_t>(variable.size);
      symbol.at = reserve(variable.size * kLanes);
      break;
    case Space::kLocal:
      symbol.kind = Symbol::Kind::kLocal;
      function_.local_bytes = static_cast<std::uint32_t>(
          rounded_up(function_.local_bytes, variable.alignment));
      symbol.at = function_.local_bytes;
      function_.local_bytes += static_cast<std::uint32_t>(variable.size);
      break;
    case Space::kShared:
      symbol.kind = Symbol::Kind::kAddress;
      function_.shared.push_back(&variable);
      break;
    default:
      refuse(fmt::format("{} is declared within a function", variable.name));
  }
  names[variable.name] = symbol;
}

void Decoder::declare_parameters() {
  const auto add = [&](const auto& variables, std::vector<Region>& regions) {
    for (const syntax::Variable& each : variables) {
      declare(each, names_[0]);
      const Symbol& symbol = names_[0][each.name];
      regions.push_back({.at = symbol.at, .size = symbol.size});
    }
  };
  if (!function_.is_entry) {
    add(syntax_.results, function_.results);
    add(syntax_.parameters, function_.parameters);
    return;
  }
  for (const syntax::Variable& each : syntax_.parameters) {
    function_.parameter_bytes = rounded_up(function_.parameter_bytes, each.alignment);
    function_.parameter_offsets.push_back(function_.parameter_bytes);
    function_.parameter_bytes += each.size;
  }
}

void Decoder::declare() {
  names_.resize(std::max<std::size_t>(syntax_.scopes.size(), 1));
  declare_parameters();
  for (std::size_t i = 0; i < syntax_.scopes.size(); ++i) {
    for (const syntax::Variable& variable : syntax_.scopes[i].variables)
      declare(variable, names_[i]);
  }
}

// "%r12" of ".reg .b32 %r<20>", or a name by itself.
std::optional<Symbol> Decoder::find(std::string_view name, unsigned scope) const {
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  unsigned number = 0;
  const bool is_numbered = digits < name.size() && digits > 0;
  if (is_numbered)
    std::from_chars(name.data() + digits, name.data() + name.size(), number);
  while (true) {
    const Names& names = names_[scope];
    if (const auto found = names.find(name);
        found != names.end() && found->second.repeats == 0)
      return found->second;
    if (const auto found =
            is_numbered ? names.find(name.substr(0, digits)) : names.end();
        found != names.end() && number < found->second.repeats) {
      Symbol symbol = found->second;
      symbol.at += number * symbol.size;
      return symbol;
    }
    if (scope == 0)
      return std::nullopt;
    scope = syntax_.scopes[scope].parent;
  }
}

Operand Decoder::constant(std::uint64_t bits, Type type) {
  const std::size_t bytes = type.bytes();
  if (bytes < 8)
    bits &= (std::uint64_t{1} << (8 * bytes)) - 1;
  if (type == kPred)
    bits = bits != 0 ? kAllLanes : 0;
  const auto [known, is_new] =
      constants_.try_emplace({bits, type == kPred ? 0 : bytes});
  if (is_new) {
    const std::uint32_t at = add_constant(register_bytes(type));
    std::byte* const to = function_.constants.data() + at - function_.register_bytes;
    for (unsigned lane = 0; lane < (type == kPred ? 1 : kLanes); ++lane)
      std::memcpy(to + lane * bytes, &bits, std::min<std::size_t>(bytes, 8));
    known->second = {.at = at, .bytes = static_cast<std::uint8_t>(bytes)};
  }
  return known->second;
}

// A value that a new frame gets; as wide as the instruction asks for.
Operand Decoder::special(std::string_view name, Type type) {
  if (Special which = special_named(name)) {
    const auto [fill, is_new] =
        fills_.try_emplace(fmt::format("{} {}", name, type.bytes()));
    if (is_new) {
      fill->second = {.at = add_constant(type.bytes() * kLanes),
                      .bytes = static_cast<std::uint8_t>(type.bytes())};
      function_.fills.push_back({.at = fill->second.at,
                                 .bytes = fill->second.bytes,
                                 .special = std::move(which)});
    }
    return fill->second;
  }
  if (name == "WARP_SZ")
    return constant(kLanes, type);
  if (const auto now = clock(name, type))
    return *now;
  refuse(fmt::format("{} is not known", name));
}

// Read anew each time, by an instruction in front.
std::optional<Operand> Decoder::clock(std::string_view name, Type type) {
  const bool is_long = name == "%clock64" || name == "%globaltimer";
  const bool is_high = name == "%clock_hi" || name == "%globaltimer_hi";
  if (!is_long && !is_high && name != "%clock" && name != "%globaltimer_lo")
    return std::nullopt;
  if (type.bytes() != (is_long ? 8 : 4))
    refuse(fmt::format("{} has another width", name));
  Instruction read{
      .run = is_long ? &read_clock<std::uint64_t> : &read_clock<std::uint32_t>,
      .statement = made.statement};
  read.mode = is_high ? 32 : 0;
  read.operands = {{.at = add_constant(type.bytes() * kLanes),
                    .bytes = static_cast<std::uint8_t>(type.bytes())}};
  const Operand operand = read.operands[0];
  function_.code.push_back(std::move(read));
  return operand;
}

Operand Decoder::address_of(std::string_view name, Type type) {
  const auto bytes = static_cast<std::uint8_t>(type.bytes());
  if (bytes < 4)
    refuse(fmt::format("{} is an address", name));
  if (function_.is_entry) {
    for (std::size_t i = 0; i < syntax_.parameters.size(); ++i) {
      if (syntax_.parameters[i].name == name)
        return constant(function_.parameter_offsets[i], type);
    }
  }
  const auto symbol = find(name);
  const auto [fill, is_new] = fills_.try_emplace(
      fmt::format("{} {} {}", name, bytes, symbol ? statement().scope : 0));
  if (!is_new)
    return fill->second;
  fill->second = {.at = add_constant(std::size_t{bytes} * kLanes), .bytes = bytes};
  if (symbol && symbol->kind == Symbol::Kind::kLocal) {
    function_.fills.push_back(
        {.at = fill->second.at, .bytes = bytes, .local_at = symbol->at});
    return fill->second;
  }
  const auto& variables = program_.module.variables;
  const bool is_variable =
      std::any_of(variables.begin(), variables.end(),
                  [&](const auto& variable) { return variable.name == name; });
  if (!symbol && !is_variable && program_.find(name) == nullptr)
    refuse(fmt::format("{} is not known", name));
  if (symbol && symbol->kind == Symbol::Kind::kRegion)
    refuse("addresses of parameters of functions are not run here");
  if (const Function* const callee = program_.find(name); callee != nullptr)
    function_.calls_by_pointer = true;
  function_.relocations.push_back(
      {.at = fill->second.at, .bytes = bytes, .symbol = name});
  return fill->second;
}

// Eight bits lie in registers of 16 or more.
void Decoder::check_width(std::string_view name, Type held, Type type) const {
  const std::size_t bytes = type.bytes();
  if (held.bytes() < bytes)
    refuse(fmt::format("{} is too narrow", name));
  if (held.bytes() > std::max<std::size_t>(bytes, 2) && !may_be_wider)
    refuse(fmt::format("{} is too wide", name));
}

const Argument& Decoder::argument(std::size_t index) const {
  if (index >= count())
    refuse(fmt::format("it has {} operands only", count()));
  return statement().arguments[index];
}

Operand Decoder::source(const Argument& argument, Type type) {
  switch (argument.kind) {
    case Argument::Kind::kName: {
      if (const auto symbol = find(argument.name);
          symbol && symbol->kind == Symbol::Kind::kRegister) {
        if ((symbol->type == kPred) != (type == kPred))
          refuse(fmt::format("{} is of another type", argument.name));
        check_width(argument.name, symbol->type, type);
        return {.at = symbol->at,
                .bytes = static_cast<std::uint8_t>(symbol->type.bytes()),
                .is_negated = argument.is_negated};
      }
      if (argument.name.starts_with('%') || argument.name == "WARP_SZ")
        return special(argument.name, type);
      return address_of(argument.name, type);
    }
    case Argument::Kind::kInteger:
      if (type.kind == Kind::kFloat && type.bits >= 32 && type.count == 1) {
        const auto value =
            static_cast<double>(static_cast<std::int64_t>(argument.value));
        return constant(type.bits == 64
                            ? std::bit_cast<std::uint64_t>(value)
                            : std::bit_cast<std::uint32_t>(static_cast<float>(value)),
                        type);
      }
      return constant(
          argument.is_negated ? std::uint64_t{argument.value == 0} : argument.value,
          type);
    case Argument::Kind::kFloat:
    case Argument::Kind::kFloat64: {
      const double value = std::bit_cast<double>(argument.value);
      if (type.bits == 32)
        return constant(std::bit_cast<std::uint32_t>(static_cast<float>(value)), type);
      return constant(argument.value, type);
    }
    case Argument::Kind::kFloat32: {
      const float value =
          std::bit_cast<float>(static_cast<std::uint32_t>(argument.value));
      if (type.bits == 64 && type.kind == Kind::kFloat)
        return constant(std::bit_cast<std::uint64_t>(static_cast<double>(value)), type);
      return constant(argument.value, type);
    }
    default:
      refuse("an operand of this kind stands where a value is expected");
  }
}

Operand Decoder::destination(const Argument& argument, Type type) {
  if (argument.kind == Argument::Kind::kNone || argument.name == "_") {
    // Handlers that do not ask write there.
    constexpr std::size_t kLargest = 16;
    if (!dropped_)
      dropped_ = Operand{.at = add_constant(kLargest * kLanes)};
    return *dropped_;
  }
  const auto symbol =
      argument.kind == Argument::Kind::kName ? find(argument.name) : std::nullopt;
  if (!symbol || symbol->kind != Symbol::Kind::kRegister)
    refuse(fmt::format("'{}' is no register", argument.name));
  if ((symbol->type == kPred) != (type == kPred))
    refuse(fmt::format("{} is of another type", argument.name));
  check_width(argument.name, symbol->type, type);
  return {.at = symbol->at,
          .bytes = static_cast<std::uint8_t>(symbol->type.bytes()),
          .is_negated = argument.is_negated};
}

void Decoder::address(const Argument& argument, Space space) {
  if (argument.kind != Argument::Kind::kAddress)
    refuse("it has no address");
  if (argument.parts.size() != 1)
    refuse("addresses with coordinates are not run here");
  const Argument& base = argument.parts[0];
  made.offset = static_cast<std::int64_t>(argument.value);
  made.space = space;
  if (base.kind == Argument::Kind::kInteger) {
    made.operands.push_back(constant(base.value, kB64));
    return;
  }
  const auto symbol = find(base.name);
  const bool is_register = symbol && symbol->kind == Symbol::Kind::kRegister;
  if (is_register && symbol->type.bytes() < 4)
    refuse(fmt::format("{} is too narrow for an address", base.name));
  made.operands.push_back(is_register
                              ? source(base, symbol->type.bytes() == 8 ? kB64 : kB32)
                              : address_of(base.name, kB64));
}

std::optional<Region> Decoder::region(std::string_view name) {
  const auto symbol = find(name);
  if (!symbol || symbol->kind != Symbol::Kind::kRegion)
    return std::nullopt;
  return Region{.at = symbol->at, .size = symbol->size};
}

bool Decoder::is_predicate(const Argument& argument) const {
  const auto symbol =
      argument.kind == Argument::Kind::kName ? find(argument.name) : std::nullopt;
  return symbol && symbol->type == kPred;
}

Operand Decoder::carry() {
  if (!carry_)
    carry_ = Operand{.at = add_constant(4), .bytes = 4};
  return *carry_;
}

std::uint64_t Decoder::integer(const Argument& argument) {
  if (argument.kind != Argument::Kind::kInteger)
    refuse("an operand is no number");
  return argument.value;
}

std::span<const std::string_view> Decoder::table(std::string_view name) const {
  for (unsigned scope = statement().scope;; scope = syntax_.scopes[scope].parent) {
    for (const syntax::Table& each : syntax_.scopes[scope].tables) {
      if (each.name == name)
        return each.targets;
    }
    if (scope == 0)
      refuse(fmt::format("{} is no table", name));
  }
}

}  // namespace kiln::ptx
