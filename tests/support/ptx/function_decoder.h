// Decodes a function: names become places in its frame (operands.cc), opcodes handlers
// (decode.cc).

#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "tests/support/ptx/decoder.h"

namespace kiln::ptx {

using syntax::Argument;

struct Symbol {
  enum class Kind : std::uint8_t { kRegister, kRegion, kLocal, kAddress };
  Kind kind = Kind::kRegister;
  std::uint32_t at = 0;  // in the frame, or in local memory
  Type type{};
  std::uint32_t size = 0;
  unsigned repeats = 0;
};
using Names = std::unordered_map<std::string_view, Symbol>;

class FunctionDecoder final : public Decoder {
 public:
  FunctionDecoder(const Program& program, Function& function)
      : program_(program), function_(function), syntax_(*function.syntax) {}

  void run();

  bool take(std::string_view modifier) override;
  Type take_type() override;
  [[nodiscard]] bool has_type() const override;
  void take_hints() override;
  void take_all() override { left_.clear(); }
  [[nodiscard]] std::size_t count() const override {
    return statement().arguments.size();
  }
  [[nodiscard]] const Argument& argument(std::size_t index) const override {
    if (index >= count())
      refuse(fmt::format("it has {} operands only", count()));
    return statement().arguments[index];
  }
  Operand source(const Argument& argument, Type type) override;
  Operand destination(const Argument& argument, Type type) override;
  void address(const Argument& argument, Space space) override;
  std::optional<Region> region(std::string_view name) override;
  [[nodiscard]] bool is_predicate(const Argument& argument) const override;
  Operand carry() override;
  std::uint64_t integer(const Argument& argument) override;
  [[nodiscard]] const Function* function(std::string_view name) const override {
    return program_.find(name);
  }
  [[nodiscard]] std::span<const std::string_view> table(
      std::string_view name) const override;
  void jump_to(std::string_view label) override {
    jumps_.push_back(
        {function_.code.size(), made.targets.size(), label, statement().scope});
    made.targets.push_back(0);
  }
  void calls(const Function* callee) override {
    if (callee == nullptr)
      function_.calls_by_pointer = true;
    else
      function_.callees.push_back(callee);
  }

 private:
  struct Jump {
    std::size_t instruction;
    std::size_t target;
    std::string_view label;
    unsigned scope;
  };

  void declare();
  void declare_parameters();
  void declare(const syntax::Variable& variable, Names& names);
  [[nodiscard]] std::optional<Symbol> find(std::string_view name, unsigned scope) const;
  [[nodiscard]] std::optional<Symbol> find(std::string_view name) const {
    return find(name, statement().scope);
  }
  std::uint32_t reserve(std::size_t bytes);
  std::uint32_t add_constant(std::size_t bytes);
  void check_width(std::string_view name, Type held, Type type) const;
  Operand constant(std::uint64_t bits, Type type);
  Operand special(std::string_view name, Type type);
  std::optional<Operand> clock(std::string_view name, Type type);
  Operand address_of(std::string_view name, Type type);
  void decode(const syntax::Statement& statement);
  void finish_jumps();
  void add_end();

  const Program& program_;
  Function& function_;
  const syntax::Function& syntax_;
  std::vector<Names> names_;            // by scope
  std::vector<std::string_view> left_;  // modifiers
  std::map<std::tuple<std::uint64_t, std::size_t>, Operand> constants_;
  std::map<std::string, Operand, std::less<>> fills_;
  std::vector<std::size_t> starts_;  // of the statements' instructions
  std::vector<Jump> jumps_;
  std::optional<Operand> carry_;
  std::optional<Operand> dropped_;  // where "_" is written to
};

}  // namespace kiln::ptx
