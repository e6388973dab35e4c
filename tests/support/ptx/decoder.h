// What an operation asks while it makes an instruction of a statement. Every modifier
// of the statement has to be asked for: one that nobody knows is refused.

#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/ptx/program.h"

namespace kiln::ptx {

/// Ends decode().
struct Refusal {
  std::string why;
};

/// A name of a function or its scopes.
struct Symbol {
  enum class Kind : std::uint8_t { kRegister, kRegion, kLocal, kAddress };
  Kind kind = Kind::kRegister;
  std::uint32_t at = 0;  // in the frame, or in local memory
  Type type{};
  std::uint32_t size = 0;
  unsigned repeats = 0;
};

/// Decodes a function: names become places in its frame (operands.cc), opcodes handlers
/// (decode.cc).
class Decoder {
 public:
  Decoder(const Program& program, Function& function)
      : program_(program), function_(function), syntax_(*function.syntax) {}

  void run();

  // The modifiers.

  /// True, and taken, if it is among those left.
  bool take(std::string_view modifier);
  /// The same of one that has to be there.
  void take_named(std::string_view modifier);
  /// The next type; refused where there is none.
  Type take_type();
  [[nodiscard]] bool has_type() const;
  /// The index of the one that is there.
  std::optional<std::size_t> take_one(std::initializer_list<std::string_view> names);
  /// The same; refused where none is there.
  std::size_t take_one_of(std::initializer_list<std::string_view> names);
  Rounding take_rounding();
  /// Generic where there is none.
  Space take_space();
  /// Of caches and of orders, which make no difference here.
  void take_hints();
  void take_all() { left_.clear(); }

  // The operands.

  [[nodiscard]] std::size_t count() const { return statement().arguments.size(); }
  [[nodiscard]] const syntax::Argument& argument(std::size_t index) const;
  /// A register, or a constant of that type.
  Operand source(const syntax::Argument& argument, Type type);
  /// A register with room for the type.
  Operand destination(const syntax::Argument& argument, Type type);
  /// The predicate p of "d|p"; dropped where there is none.
  Operand second_destination(const syntax::Argument& argument);
  /// `first` is a destination, the others are sources.
  void operands(Type first, std::initializer_list<Type> others);
  /// So many registers of a matrix. Refused where there are others.
  void add_registers(const syntax::Argument& argument, std::size_t count, Type type,
                     bool is_result);
  /// Those of a vector, or the one.
  std::span<const syntax::Argument> parts(const syntax::Argument& argument) const;
  /// Adds the base to the operands and sets offset; of an address of the space.
  void address(const syntax::Argument& argument, Space space);
  /// A lane's memory in the frame, by the name of a parameter.
  std::optional<Region> region(std::string_view name);
  [[nodiscard]] bool is_predicate(const syntax::Argument& argument) const;
  /// CC.CF: a mask.
  Operand carry();
  std::uint64_t integer(const syntax::Argument& argument);
  /// A function of the module; null for others.
  [[nodiscard]] const Function* function(std::string_view name) const {
    return program_.find(name);
  }
  /// The names of .branchtargets.
  [[nodiscard]] std::span<const std::string_view> table(std::string_view name) const;
  /// Sets the target once all labels are known.
  void jump_to(std::string_view label);
  void calls(const Function* callee);

  [[nodiscard]] const syntax::Statement& statement() const { return *made.statement; }
  /// Refused where there is no such handler.
  void run_by(Handler handler);
  [[noreturn]] static void refuse(std::string why) { throw Refusal{std::move(why)}; }

  Instruction made;
  /// Of ld, st and cvt: a register may be wider than the type.
  bool may_be_wider = false;

 private:
  using Names = std::unordered_map<std::string_view, Symbol>;
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

using Select = void (*)(Decoder& decoder);

struct Operation {
  std::string_view opcode;
  Select select;
};

// operations/*.cc: the opcodes of each family.
std::span<const Operation> integer_operations();
std::span<const Operation> bit_operations();
std::span<const Operation> carry_operations();
std::span<const Operation> logic_operations();
std::span<const Operation> float_operations();
std::span<const Operation> comparison_operations();
std::span<const Operation> conversion_operations();
std::span<const Operation> movement_operations();
std::span<const Operation> memory_operations();
std::span<const Operation> atomic_operations();
std::span<const Operation> copy_operations();
std::span<const Operation> warp_operations();
std::span<const Operation> matrix_operations();
std::span<const Operation> fragment_operations();
std::span<const Operation> mbarrier_operations();
std::span<const Operation> video_operations();
std::span<const Operation> control_operations();

}  // namespace kiln::ptx
