#include "tests/support/ptx/variables.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace kiln::ptx {
namespace {

/// The values that PTX gives: visit(at, bits, whether it is the address of another).
template <typename Visit>
void for_each_value(const syntax::Variable& variable, const Symbols& symbols,
                    const Program& program, const Visit& visit) {
  const std::size_t unit = variable.type.bytes();
  std::size_t at = 0;
  for (const syntax::Argument& each : variable.initial) {
    std::uint64_t bits = each.value;
    const bool is_address = each.kind == syntax::Argument::Kind::kName;
    if (is_address) {
      const auto symbol = symbols.find(each.name);
      bits += symbol != symbols.end() ? symbol->second : program.address_of(each.name);
    } else if (each.kind == syntax::Argument::Kind::kFloat && unit == 4) {
      bits =
          std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
    }
    if (at + unit > variable.size)
      return;
    visit(at, bits, is_address);
    at += unit;
  }
}

}  // namespace

Variables make_variables(const Program& program, Symbols known) {
  Variables made{.symbols = std::move(known)};
  std::vector<std::pair<const syntax::Variable*, std::byte*>> new_ones;
  for (const syntax::Variable& variable : program.module.variables) {
    const bool is_memory =
        variable.space == Space::kGlobal || variable.space == Space::kConst;
    if (!is_memory || made.symbols.contains(variable.name))
      continue;
    auto& bytes = made.memory.emplace_back(variable.size + variable.alignment);
    const auto begin = reinterpret_cast<std::uint64_t>(bytes.data());
    const std::uint64_t address = rounded_up(begin, variable.alignment);
    made.symbols[std::string(variable.name)] = address;
    made.stretches.push_back({.begin = address, .end = address + variable.size});
    new_ones.emplace_back(&variable, bytes.data() + (address - begin));
  }
  // Once all have addresses.
  for (const auto& [variable, bytes] : new_ones) {
    const std::size_t unit = variable->type.bytes();
    std::byte* const to = bytes;
    for_each_value(*variable, made.symbols, program,
                   [&](std::size_t at, std::uint64_t bits, bool) {
                     std::memcpy(to + at, &bits, std::min(unit, sizeof bits));
                   });
  }
  return made;
}

void for_each_initial_address(const Program& program, const Symbols& symbols,
                              const VisitAddress& visit) {
  for (const syntax::Variable& variable : program.module.variables)
    for_each_value(variable, symbols, program,
                   [&](std::size_t at, std::uint64_t bits, bool is_address) {
                     if (is_address && variable.type.bytes() == sizeof bits)
                       visit(variable.name, at, bits);
                   });
}

std::optional<Stretch> find(const Variables& variables, std::uint64_t address) {
  for (const Stretch& each : variables.stretches) {
    if (address >= each.begin && address < each.end)
      return each;
  }
  return std::nullopt;
}

}  // namespace kiln::ptx
