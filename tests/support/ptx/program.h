// A decoded program: what runs. Registers, constants and special registers of a
// function lie in one frame, each for 32 lanes side by side, so that an operand of any
// kind is an offset.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "tests/support/ptx/syntax.h"
#include "tests/support/ptx/types.h"

namespace kiln::ptx {

using syntax::Space;

inline constexpr unsigned kLanes = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffff;

[[nodiscard]] constexpr std::size_t rounded_up(std::size_t value, std::size_t unit) {
  return unit == 0 ? value : (value + unit - 1) / unit * unit;
}

struct Lanes;
struct Instruction;
struct Function;

/// Runs an instruction for the lanes of a mask.
using Handler = void (*)(Lanes& lanes, const Instruction& instruction);

/// A place in the frame: of 32 values, or of a mask for predicates.
struct Operand {
  std::uint32_t at = 0;
  std::uint8_t bytes = 0;   // of a lane's value; 0 for what is dropped ("_")
  bool is_negated = false;  // a predicate
  [[nodiscard]] bool is_dropped() const { return bytes == 0; }
};

/// How an instruction takes part in its warp's course.
enum class Course : std::uint8_t {
  kPlain,
  kBranch,  // to targets[0]
  kTable,   // to targets[operands[0]]
  kCall,    // callee, or operands[0]
  kReturn,  // of a function
  kExit,
  kBarrier,   // of the block, waited at
  kArrival,   // at a barrier of the block, without waiting
  kTogether,  // all lanes of the warp at this instruction (".aligned")
  kExchange,  // the lanes of a mask, wherever they are: gather, then run
};

enum class Rounding : std::uint8_t { kNearest, kZero, kDown, kUp, kNearestAway };

/// Memory of each lane in the frame: parameters of functions.
struct Region {
  std::uint32_t at = 0;
  std::uint32_t size = 0;  // of a lane
};

struct Call {
  const Function* callee = nullptr;  // null: by pointer
  std::vector<Region> arguments{};   // of the caller's frame
  Region result{};                   // of size 0: none
};

struct Instruction {
  Handler run = nullptr;
  Handler gather =
      nullptr;  // of kExchange: leaves each lane's value where others see it
  Course course = Course::kPlain;
  Operand guard{};  // dropped: always
  std::vector<Operand> operands{};
  std::int64_t offset = 0;     // added to an address, in bytes
  std::int64_t to_offset = 0;  // to that of a copy's target
  Space space = Space::kGeneric;
  // What the modifiers say, as far as the handler asks for it.
  Rounding rounding = Rounding::kNearest;
  bool flushes = false;    // ftz
  bool saturates = false;  // sat, satfinite
  bool is_other = false;   // each handler's own second form
  std::uint8_t mode = 0;   // each handler's own choice
  Operand members{};       // of kExchange: the mask of the lanes that take part
  std::vector<std::uint32_t> targets{};
  std::unique_ptr<Call> call{};
  std::shared_ptr<const void> shape{};  // of matrices, the handler's own
  const syntax::Statement* statement = nullptr;
};

struct Place;

/// What a special register is worth for a thread.
using Special = std::function<std::uint64_t(const Place& at)>;
/// Null where none has that name.
[[nodiscard]] Special special_named(std::string_view name);

/// A place among the constants that a new frame fills: with a special register, or an
/// address in the frame's local memory.
struct Fill {
  std::uint32_t at = 0;
  std::uint8_t bytes = 4;
  Special special{};
  std::uint32_t local_at = 0;
};

/// A constant that is an address.
struct Relocation {
  std::uint32_t at = 0;
  std::uint8_t bytes = 8;
  std::string_view symbol{};
};

struct Function {
  const syntax::Function* syntax = nullptr;
  std::string_view name{};
  bool is_entry = false;
  std::vector<Instruction> code{};     // its last leaves
  std::uint32_t register_bytes = 0;    // of a frame: registers and regions come first
  std::vector<std::byte> constants{};  // then these
  std::vector<Fill> fills{};
  std::vector<Relocation> relocations{};
  std::uint32_t local_bytes = 0;  // of a lane
  std::vector<Region> parameters{};
  std::vector<Region> results{};
  std::vector<std::size_t> parameter_offsets{};  // of an entry
  std::size_t parameter_bytes = 0;
  std::vector<const syntax::Variable*> shared{};  // its own
  std::vector<const Function*> callees{};
  bool calls_by_pointer = false;

  [[nodiscard]] std::size_t frame_bytes() const {
    return register_bytes + constants.size();
  }
};

/// Constant after construction; may be shared by threads.
struct Program {
  syntax::Module module{};
  std::vector<std::unique_ptr<Function>> functions{};

  [[nodiscard]] const Function* find(std::string_view name) const;
  /// A function's, as kernels see it; 0 for an unknown name.
  [[nodiscard]] std::uint64_t address_of(std::string_view name) const;
};

/// Errors: what is not run here, or is no PTX, with the statement and its line.
[[nodiscard]] tl::expected<std::shared_ptr<const Program>, std::string> decode(
    std::string text);

}  // namespace kiln::ptx
