// What an operation asks while it makes an instruction of a statement. Every modifier
// of the statement has to be asked for: one that nobody knows is refused.

#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/ptx/program.h"

namespace kiln::ptx {

/// Ends decode().
struct Refusal {
  std::string why;
};

class Decoder {
 public:
  virtual ~Decoder() = default;

  // The modifiers.

  /// True, and taken, if it is among those left.
  virtual bool take(std::string_view modifier) = 0;
  /// The same of one that has to be there.
  void take_named(std::string_view modifier);
  /// The next type; refused where there is none.
  virtual Type take_type() = 0;
  [[nodiscard]] virtual bool has_type() const = 0;
  /// The index of the one that is there.
  std::optional<std::size_t> take_one(std::initializer_list<std::string_view> names);
  /// The same; refused where none is there.
  std::size_t take_one_of(std::initializer_list<std::string_view> names);
  Rounding take_rounding();
  /// Generic where there is none.
  Space take_space();
  /// Of caches and of orders, which make no difference here.
  virtual void take_hints() = 0;
  virtual void take_all() = 0;

  // The operands.

  [[nodiscard]] virtual std::size_t count() const = 0;
  [[nodiscard]] virtual const syntax::Argument& argument(std::size_t index) const = 0;
  /// A register, or a constant of that type.
  virtual Operand source(const syntax::Argument& argument, Type type) = 0;
  /// A register with room for the type.
  virtual Operand destination(const syntax::Argument& argument, Type type) = 0;
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
  virtual void address(const syntax::Argument& argument, Space space) = 0;
  /// A lane's memory in the frame, by the name of a parameter.
  virtual std::optional<Region> region(std::string_view name) = 0;
  [[nodiscard]] virtual bool is_predicate(const syntax::Argument& argument) const = 0;
  /// CC.CF: a mask.
  virtual Operand carry() = 0;
  virtual std::uint64_t integer(const syntax::Argument& argument) = 0;
  /// A function of the module; null for others.
  [[nodiscard]] virtual const Function* function(std::string_view name) const = 0;
  /// The names of .branchtargets.
  [[nodiscard]] virtual std::span<const std::string_view> table(
      std::string_view name) const = 0;
  /// Sets the target once all labels are known.
  virtual void jump_to(std::string_view label) = 0;
  virtual void calls(const Function* callee) = 0;

  [[nodiscard]] const syntax::Statement& statement() const { return *made.statement; }
  /// Refused where there is no such handler.
  void run_by(Handler handler) {
    if (handler == nullptr)
      refuse("this type is not one of the instruction's");
    made.run = handler;
  }
  [[noreturn]] static void refuse(std::string why) { throw Refusal{std::move(why)}; }

  Instruction made;
  /// Of ld, st and cvt: a register may be wider than the type.
  bool may_be_wider = false;
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
