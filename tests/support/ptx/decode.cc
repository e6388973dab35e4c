// From statements to instructions: names become places in the frame, opcodes handlers.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "tests/support/ptx/decoder.h"
#include "tests/support/ptx/machine.h"

namespace kiln::ptx {

std::optional<std::size_t> Decoder::take_one(
    std::initializer_list<std::string_view> names) {
  std::size_t index = 0;
  for (const std::string_view name : names) {
    if (take(name))
      return index;
    ++index;
  }
  return std::nullopt;
}

std::size_t Decoder::take_one_of(std::initializer_list<std::string_view> names) {
  if (const auto taken = take_one(names))
    return *taken;
  std::string all;
  for (const std::string_view name : names) all.append(" .").append(name);
  refuse("it has none of" + all);
}

Space Decoder::take_space() {
  constexpr std::array kSpaces{Space::kGlobal, Space::kConst, Space::kShared,
                               Space::kLocal, Space::kParam};
  const auto space = take_one({"global", "const", "shared", "local", "param"});
  return space ? kSpaces.at(*space) : Space::kGeneric;
}

void Decoder::take_named(std::string_view modifier) {
  if (!take(modifier))
    refuse(fmt::format("it has no .{}", modifier));
}

Rounding Decoder::take_rounding() {
  const auto taken = take_one({"rn", "rz", "rm", "rp", "rna"});
  return static_cast<Rounding>(taken.value_or(0));
}

void Decoder::operands(Type first, std::initializer_list<Type> others) {
  if (count() != others.size() + 1)
    refuse(fmt::format("it has {} operands, not {}", count(), others.size() + 1));
  made.operands.push_back(destination(argument(0), first));
  std::size_t index = 1;
  for (const Type type : others)
    made.operands.push_back(source(argument(index++), type));
}

Operand Decoder::second_destination(const syntax::Argument& argument) {
  if (argument.second.empty())
    return {};
  return destination({.kind = syntax::Argument::Kind::kName, .name = argument.second},
                     kPred);
}

void Decoder::add_registers(const syntax::Argument& argument, std::size_t count,
                            Type type, bool is_result) {
  const auto registers = parts(argument);
  if (registers.size() != count)
    refuse("it has not as many registers as its shape");
  for (const auto& each : registers)
    made.operands.push_back(is_result ? destination(each, type) : source(each, type));
}

std::span<const syntax::Argument> Decoder::parts(
    const syntax::Argument& argument) const {
  if (argument.kind == syntax::Argument::Kind::kVector)
    return argument.parts;
  return {&argument, 1};
}

namespace {

/// All opcodes of all families.
Select select_of(std::string_view opcode) {
  static const auto all = [] {
    std::unordered_map<std::string_view, Select> found;
    for (const auto& family :
         {integer_operations(), bit_operations(), carry_operations(),
          logic_operations(), float_operations(), comparison_operations(),
          conversion_operations(), movement_operations(), memory_operations(),
          atomic_operations(), copy_operations(), warp_operations(),
          matrix_operations(), fragment_operations(), mbarrier_operations(),
          video_operations(), control_operations()}) {
      for (const Operation& each : family) found.emplace(each.opcode, each.select);
    }
    return found;
  }();
  const auto found = all.find(opcode);
  return found == all.end() ? nullptr : found->second;
}

}  // namespace

void Decoder::run_by(Handler handler) {
  if (handler == nullptr)
    refuse("this type is not one of the instruction's");
  made.run = handler;
}

void Decoder::jump_to(std::string_view label) {
  jumps_.push_back(
      {function_.code.size(), made.targets.size(), label, statement().scope});
  made.targets.push_back(0);
}

void Decoder::calls(const Function* callee) {
  if (callee == nullptr)
    function_.calls_by_pointer = true;
  else
    function_.callees.push_back(callee);
}

bool Decoder::take(std::string_view modifier) {
  const auto found = std::find(left_.begin(), left_.end(), modifier);
  if (found == left_.end())
    return false;
  left_.erase(found);
  return true;
}

bool Decoder::has_type() const {
  return std::any_of(left_.begin(), left_.end(), [](std::string_view each) {
    return type_named(each).has_value();
  });
}

Type Decoder::take_type() {
  for (auto each = left_.begin(); each != left_.end(); ++each) {
    if (const auto type = type_named(*each)) {
      left_.erase(each);
      return *type;
    }
  }
  refuse("it names no type");
}

void Decoder::take_hints() {
  static constexpr auto kHints = std::to_array<std::string_view>(
      {"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "sc",
       "mmio", "cta",      "cluster", "gpu",     "sys",     "ca",      "cg",
       "cs",   "lu",       "cv",      "wb",      "wt",      "nc"});
  std::erase_if(left_, [](std::string_view each) {
    return std::find(kHints.begin(), kHints.end(), each) != kHints.end() ||
           each.starts_with("L1::") || each.starts_with("L2::");
  });
}

void Decoder::decode(const syntax::Statement& statement) {
  made = Instruction{};
  may_be_wider = false;
  made.statement = &statement;
  left_.clear();
  for (const std::string_view modifier : statement.modifiers) {
    // The space of one's own block.
    left_.push_back(modifier == "shared::cta"         ? "shared"
                    : modifier.starts_with("param::") ? "param"
                                                      : modifier);
  }
  const Select select = select_of(statement.opcode);
  if (select == nullptr)
    refuse("this instruction is not run here");
  if (!statement.guard.predicate.empty())
    made.guard = source({.kind = syntax::Argument::Kind::kName,
                         .name = statement.guard.predicate,
                         .is_negated = statement.guard.is_negated},
                        kPred);
  select(*this);
  if (!left_.empty())
    refuse(fmt::format("its modifier .{} is not known", left_.front()));
  function_.code.push_back(std::move(made));
}

void Decoder::finish_jumps() {
  for (const Jump& jump : jumps_) {
    std::optional<std::size_t> at;
    for (unsigned scope = jump.scope; !at; scope = syntax_.scopes[scope].parent) {
      for (const syntax::Label& label : syntax_.scopes[scope].labels) {
        if (label.name == jump.label)
          at = label.at;
      }
      if (scope == 0)
        break;
    }
    if (!at)
      refuse(fmt::format("{} is no label", jump.label));
    function_.code[jump.instruction].targets[jump.target] =
        static_cast<std::uint32_t>(starts_[*at]);
  }
}

// Behind the last statement lanes leave.
void Decoder::add_end() {
  static const syntax::Statement statement{.opcode = "ret",
                                           .text = "the end of the function"};
  starts_.push_back(function_.code.size());
  function_.code.push_back({.course = Course::kReturn, .statement = &statement});
}

void Decoder::run() {
  declare();
  for (const syntax::Statement& statement : syntax_.statements) {
    starts_.push_back(function_.code.size());
    try {
      decode(statement);
    } catch (const Refusal& refusal) {
      throw Refusal{fmt::format("{}: {}: {}", function_.name,
                                describe(program_, statement), refusal.why)};
    }
  }
  add_end();
  finish_jumps();
}

tl::expected<std::shared_ptr<const Program>, std::string> decode(std::string text) {
  auto module = syntax::parse(std::move(text));
  if (!module)
    return tl::unexpected(module.error());
  auto program = std::make_shared<Program>();
  program->module = std::move(*module);
  // A declaration and its definition are one function.
  for (const syntax::Function& each : program->module.functions) {
    const Function* const known = program->find(each.name);
    if (known == nullptr || (each.has_body && !known->syntax->has_body)) {
      auto function = std::make_unique<Function>();
      function->syntax = &each;
      function->name = each.name;
      function->is_entry = each.is_entry;
      std::erase_if(program->functions,
                    [&](const auto& other) { return other->name == each.name; });
      program->functions.push_back(std::move(function));
    }
  }
  try {
    for (const auto& function : program->functions) Decoder(*program, *function).run();
  } catch (const Refusal& refusal) {
    return tl::unexpected(refusal.why);
  }
  return program;
}

}  // namespace kiln::ptx
