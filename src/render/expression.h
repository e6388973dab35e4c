// The small language of kernel.toml: 64-bit integers and booleans, checked when read.
// Grammar and meaning: templates/README.md, "Expressions".

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"

namespace kiln::render {

enum class ValueType : std::uint8_t { kInteger, kBoolean };

/// The names that an expression may use; each has a slot, counted from 0.
/// Thread safety: none while adding; const functions from any thread.
class SymbolTable {
 public:
  /// The slot of the new name; nullopt if the name exists already.
  std::optional<std::size_t> add(std::string name, ValueType type);

  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const;
  [[nodiscard]] ValueType type(std::size_t slot) const { return types_[slot]; }
  [[nodiscard]] const std::string& name(std::size_t slot) const { return names_[slot]; }
  [[nodiscard]] std::size_t size() const { return names_.size(); }
  [[nodiscard]] std::span<const std::string> names() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::vector<ValueType> types_;
  std::map<std::string, std::size_t, std::less<>> slots_;
};

/// By slot; a boolean is 0 or 1. nullopt: the name has no number here (the word "any"
/// in an enum that also has integers).
using Value = std::optional<std::int64_t>;

/// A parsed expression. Immutable.
/// Thread safety: any number of threads may evaluate one.
class Expression {
 public:
  /// Errors: kInvalidArgument with the column: no expression, an unknown name (with the
  /// nearest), types that do not fit, over 4096 characters or 100 levels.
  [[nodiscard]] static Result<Expression> parse(std::string_view text,
                                                const SymbolTable& symbols);
  [[nodiscard]] static Expression constant(std::int64_t value, ValueType type);

  /// Every word in `text`, known or not, in order: what it may depend on.
  [[nodiscard]] static std::vector<std::string> words_in(std::string_view text);

  [[nodiscard]] ValueType type() const { return nodes_.back().type; }
  [[nodiscard]] const std::string& text() const { return text_; }
  /// `values` by slot, at least as many as the table had when this was parsed.
  /// Evaluates only what is needed. Errors: kInvalidArgument on overflow, division by
  /// zero, or an absent value.
  [[nodiscard]] Result<std::int64_t> evaluate(std::span<const Value> values) const;

 private:
  friend class ExpressionParser;
  friend class ExpressionEvaluator;

  enum class Op : std::uint8_t {
    kNumber,
    kName,
    kNot,
    kNegate,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kRemainder,
    kEqual,
    kNotEqual,
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
    kAnd,
    kOr,
    kCondition,
    kCeilDiv,
    kAlignUp,
    kMin,
    kMax,
  };
  struct Node {
    Op op;
    ValueType type;
    std::int64_t number = 0;                // kNumber: its value; kName: its slot
    std::vector<std::uint32_t> operands{};  // indices of nodes before this one
  };

  Expression() = default;

  std::string text_;
  std::vector<Node> nodes_;         // the last is the root
  std::vector<std::string> names_;  // by slot, for names that are used; for messages
};

}  // namespace kiln::render
