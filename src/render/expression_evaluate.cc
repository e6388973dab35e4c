#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "render/expression.h"
#include "util/try.h"

namespace kiln::render {

class ExpressionEvaluator {
 public:
  ExpressionEvaluator(const Expression& expression, std::span<const Value> values)
      : expression_(expression), values_(values) {}

  // The parser bounds the height of the tree, and with it this recursion.
  [[nodiscard]] Result<std::int64_t> value(
      std::size_t index) const {  // NOLINT(misc-no-recursion)
    const Expression::Node& node = expression_.nodes_[index];
    switch (node.op) {
      case Op::kNumber:
        return node.number;
      case Op::kName:
        return named(static_cast<std::size_t>(node.number));
      case Op::kNot:
        return KILN_TRY(value(node.operands[0])) == 0 ? 1 : 0;
      case Op::kNegate:
        return arithmetic(Op::kSubtract, 0, KILN_TRY(value(node.operands[0])));
      case Op::kAnd:
        return KILN_TRY(value(node.operands[0])) == 0 ? 0 : value(node.operands[1]);
      case Op::kOr:
        return KILN_TRY(value(node.operands[0])) != 0 ? 1 : value(node.operands[1]);
      case Op::kCondition:
        return value(node.operands[KILN_TRY(value(node.operands[0])) != 0 ? 1 : 2]);
      default:
        return fold(node);
    }
  }

 private:
  using Op = Expression::Op;

  [[nodiscard]] tl::unexpected<Error> error(std::string_view what) const {
    return refuse("'{}': {}", expression_.text_, what);
  }

  [[nodiscard]] Result<std::int64_t> named(std::size_t slot) const {
    if (slot < values_.size() && values_[slot])
      return *values_[slot];
    return error(fmt::format("{} is not a number here", expression_.names_[slot]));
  }

  [[nodiscard]] Result<std::int64_t> fold(const Expression::Node& node) const {
    std::int64_t result = KILN_TRY(value(node.operands[0]));
    for (std::size_t i = 1; i < node.operands.size(); ++i) {
      const std::int64_t next = KILN_TRY(value(node.operands[i]));
      result = KILN_TRY(apply(node.op, result, next));
    }
    return result;
  }

  [[nodiscard]] Result<std::int64_t> apply(Op op, std::int64_t a,
                                           std::int64_t b) const {
    switch (op) {
      case Op::kEqual:
        return a == b ? 1 : 0;
      case Op::kNotEqual:
        return a != b ? 1 : 0;
      case Op::kLess:
        return a < b ? 1 : 0;
      case Op::kLessEqual:
        return a <= b ? 1 : 0;
      case Op::kGreater:
        return a > b ? 1 : 0;
      case Op::kGreaterEqual:
        return a >= b ? 1 : 0;
      case Op::kMin:
        return std::min(a, b);
      case Op::kMax:
        return std::max(a, b);
      case Op::kDivide:
      case Op::kRemainder:
      case Op::kCeilDiv:
      case Op::kAlignUp:
        return divide(op, a, b);
      default:
        return arithmetic(op, a, b);
    }
  }

  [[nodiscard]] Result<std::int64_t> arithmetic(Op op, std::int64_t a,
                                                std::int64_t b) const {
    std::int64_t result = 0;
    bool overflow = false;
    if (op == Op::kAdd)
      overflow = __builtin_add_overflow(a, b, &result);
    else if (op == Op::kSubtract)
      overflow = __builtin_sub_overflow(a, b, &result);
    else
      overflow = __builtin_mul_overflow(a, b, &result);
    if (overflow)
      return error("the result does not fit 64 bits");
    return result;
  }

  [[nodiscard]] Result<std::int64_t> divide(Op op, std::int64_t a,
                                            std::int64_t b) const {
    if (b == 0)
      return error("division by zero");
    if (op == Op::kDivide || op == Op::kRemainder) {
      if (b == -1)  // only this divisor can overflow
        return op == Op::kRemainder ? Result<std::int64_t>(0)
                                    : arithmetic(Op::kSubtract, 0, a);
      return op == Op::kDivide ? a / b : a % b;
    }
    if (b < 0)
      return error("ceil_div and align_up need a positive second value");
    const std::int64_t quotient = a / b + (a % b > 0 ? 1 : 0);
    return op == Op::kCeilDiv ? quotient : arithmetic(Op::kMultiply, quotient, b);
  }

  const Expression& expression_;
  std::span<const Value> values_;
};

Result<std::int64_t> Expression::evaluate(std::span<const Value> values) const {
  return ExpressionEvaluator(*this, values).value(nodes_.size() - 1);
}

}  // namespace kiln::render
