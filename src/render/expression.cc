#include "render/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <utility>

#include "util/ascii.h"
#include "util/nearest.h"
#include "util/try.h"

namespace kiln::render {

namespace {

constexpr std::size_t kMaxExpressionBytes = 4096;
constexpr std::size_t kMaxLevels = 100;

std::string_view to_string(ValueType type) {
  return type == ValueType::kInteger ? "an integer" : "a boolean";
}

}  // namespace

std::optional<std::size_t> SymbolTable::add(std::string name, ValueType type) {
  const auto [at, added] = slots_.emplace(name, names_.size());
  if (!added)
    return std::nullopt;
  names_.push_back(std::move(name));
  types_.push_back(type);
  return at->second;
}

std::optional<std::size_t> SymbolTable::find(std::string_view name) const {
  const auto at = slots_.find(name);
  return at == slots_.end() ? std::nullopt : std::optional(at->second);
}

/// Recursive descent, one level of precedence at a time; functions return node indices.
class ExpressionParser {
 public:
  ExpressionParser(std::string_view text, const SymbolTable& symbols)
      : text_(text), symbols_(symbols) {}

  Result<Expression> run() {
    if (text_.size() > kMaxExpressionBytes)
      return error("over {} characters", kMaxExpressionBytes);
    const Index root = KILN_TRY(condition());
    skip_blanks();
    if (at_ != text_.size())
      return error("'{}' is not expected here", text_[at_]);
    // condition() creates its node after all others, so the root is the last one. If
    // the whole expression is one operand, its node is the only one.
    if (root + 1 != out_.nodes_.size())
      return error("internal: the root is not the last node");
    out_.text_ = std::string(text_);
    return std::move(out_);
  }

 private:
  using Op = Expression::Op;
  using Index = std::uint32_t;

  struct Operator {
    std::string_view sign;
    Op op;
    ValueType operands;
    ValueType result;
  };
  static constexpr ValueType kInt = ValueType::kInteger;
  static constexpr ValueType kBool = ValueType::kBoolean;
  static constexpr std::size_t kPrecedences = 6;
  // Weakest first; within a level the longer sign first, so that <= is not read as <.
  static constexpr std::array<std::array<Operator, 4>, kPrecedences> kOperators{{
      {{{"||", Op::kOr, kBool, kBool}}},
      {{{"&&", Op::kAnd, kBool, kBool}}},
      {{{"==", Op::kEqual, kInt, kBool}, {"!=", Op::kNotEqual, kInt, kBool}}},
      {{{"<=", Op::kLessEqual, kInt, kBool},
        {">=", Op::kGreaterEqual, kInt, kBool},
        {"<", Op::kLess, kInt, kBool},
        {">", Op::kGreater, kInt, kBool}}},
      {{{"+", Op::kAdd, kInt, kInt}, {"-", Op::kSubtract, kInt, kInt}}},
      {{{"*", Op::kMultiply, kInt, kInt},
        {"/", Op::kDivide, kInt, kInt},
        {"%", Op::kRemainder, kInt, kInt}}},
  }};

  static constexpr std::array<std::pair<std::string_view, Op>, 4> kFunctions{
      {{"ceil_div", Op::kCeilDiv},
       {"align_up", Op::kAlignUp},
       {"min", Op::kMin},
       {"max", Op::kMax}}};

  template <typename... Args>
  tl::unexpected<Error> error(fmt::format_string<Args...> format, Args&&... args) {
    return refuse("column {}: {}", at_ + 1,
                  fmt::format(format, std::forward<Args>(args)...));
  }

  void skip_blanks() {
    at_ = std::min(text_.find_first_not_of(" \t\n\r", at_), text_.size());
  }

  bool take(std::string_view sign) {
    skip_blanks();
    if (text_.substr(at_, sign.size()) != sign)
      return false;
    at_ += sign.size();
    return true;
  }

  Result<Index> make(Op op, ValueType type, std::vector<Index> operands,
                     std::int64_t number = 0) {
    std::size_t height = 1;
    for (const Index operand : operands)
      height = std::max(height, heights_[operand] + 1);
    if (height > kMaxLevels)
      return error("nested over {} levels", kMaxLevels);
    heights_.push_back(height);
    out_.nodes_.push_back({op, type, number, std::move(operands)});
    return static_cast<Index>(out_.nodes_.size() - 1);
  }

  Result<void> expect(Index node, ValueType type, std::string_view where) {
    if (out_.nodes_[node].type == type)
      return {};
    return error("{} needs {}, this is {}", where, to_string(type),
                 to_string(out_.nodes_[node].type));
  }

  Result<Index> condition() {
    if (++level_ > kMaxLevels)
      return error("nested over {} levels", kMaxLevels);
    const Index test = KILN_TRY(binary(0));
    Index result = test;
    if (take("?")) {
      KILN_TRY(expect(test, kBool, "?:"));
      const Index yes = KILN_TRY(condition());
      if (!take(":"))
        return error("':' is missing");
      const Index no = KILN_TRY(condition());
      KILN_TRY(expect(no, out_.nodes_[yes].type, "the other side of ?:"));
      result = KILN_TRY(make(Op::kCondition, out_.nodes_[yes].type, {test, yes, no}));
    }
    --level_;
    return result;
  }

  const Operator* take_operator(std::size_t precedence) {
    for (const Operator& candidate : kOperators[precedence]) {
      if (!candidate.sign.empty() && take(candidate.sign))
        return &candidate;
    }
    return nullptr;
  }

  Result<Index> binary(std::size_t precedence) {
    if (precedence == kPrecedences)
      return unary();
    Index left = KILN_TRY(binary(precedence + 1));
    while (const Operator* found = take_operator(precedence)) {
      const Index right = KILN_TRY(binary(precedence + 1));
      // == and != take two operands of one type; for the others the table has the type.
      const bool equality = found->op == Op::kEqual || found->op == Op::kNotEqual;
      const ValueType wanted = equality ? out_.nodes_[left].type : found->operands;
      KILN_TRY(expect(left, wanted, found->sign));
      KILN_TRY(expect(right, wanted, found->sign));
      left = KILN_TRY(make(found->op, found->result, {left, right}));
    }
    return left;
  }

  Result<Index> unary() {
    if (++level_ > kMaxLevels)
      return error("nested over {} levels", kMaxLevels);
    Result<Index> result = Index{0};
    if (take("!")) {
      const Index operand = KILN_TRY(unary());
      KILN_TRY(expect(operand, kBool, "!"));
      result = make(Op::kNot, kBool, {operand});
    } else if (take("-")) {
      const Index operand = KILN_TRY(unary());
      KILN_TRY(expect(operand, kInt, "-"));
      result = make(Op::kNegate, kInt, {operand});
    } else {
      result = primary();
    }
    --level_;
    return result;
  }

  Result<Index> primary() {
    if (take("(")) {
      const Index inner = KILN_TRY(condition());
      if (!take(")"))
        return error("')' is missing");
      return inner;
    }
    skip_blanks();
    if (at_ == text_.size())
      return error("a number or a name is missing");
    if (is_digit(text_[at_]))
      return number();
    if (is_name_start(text_[at_]))
      return name();
    return error("'{}' is not expected here", text_[at_]);
  }

  Result<Index> number() {
    std::int64_t value = 0;
    const char* begin = text_.data() + at_;
    const char* limit = text_.data() + text_.size();
    const auto [end, status] = std::from_chars(begin, limit, value);
    if (status != std::errc{})
      return error("the number does not fit 64 bits");
    if (end != limit && is_name_char(*end))
      return error("numbers are decimal digits alone");
    at_ += static_cast<std::size_t>(end - begin);
    return make(Op::kNumber, kInt, {}, value);
  }

  Result<Index> name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word == "true" || word == "false")
      return make(Op::kNumber, kBool, {}, word == "true" ? 1 : 0);
    for (const auto& [function, op] : kFunctions) {
      if (word == function)
        return call(word, op);
    }
    const auto slot = symbols_.find(word);
    if (!slot) {
      at_ = begin;
      return error("unknown name '{}'{}", word, did_you_mean(word, symbols_.names()));
    }
    if (out_.names_.size() <= *slot)
      out_.names_.resize(*slot + 1);
    out_.names_[*slot] = std::string(word);
    return make(Op::kName, symbols_.type(*slot), {}, static_cast<std::int64_t>(*slot));
  }

  Result<Index> call(std::string_view word, Op op) {
    if (!take("("))
      return error("'(' is missing after {}", word);
    std::vector<Index> operands;
    do {
      operands.push_back(KILN_TRY(condition()));
      KILN_TRY(expect(operands.back(), kInt, word));
    } while (take(","));
    if (!take(")"))
      return error("')' is missing");
    const bool two = op == Op::kCeilDiv || op == Op::kAlignUp;
    if (operands.size() < 2 || (two && operands.size() > 2))
      return error("{} takes {}", word, two ? "two values" : "two values or more");
    return make(op, kInt, std::move(operands));
  }

  std::string_view text_;
  const SymbolTable& symbols_;
  std::size_t at_ = 0;
  std::size_t level_ = 0;
  std::vector<std::size_t> heights_;  // by node
  Expression out_;
};

Result<Expression> Expression::parse(std::string_view text,
                                     const SymbolTable& symbols) {
  return ExpressionParser(text, symbols).run();
}

Expression Expression::constant(std::int64_t value, ValueType type) {
  Expression out;
  out.text_ = type == ValueType::kInteger ? fmt::to_string(value)
                                          : (value != 0 ? "true" : "false");
  out.nodes_.push_back({Op::kNumber, type, value, {}});
  return out;
}

std::vector<std::string> Expression::words_in(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_name_char(text[end])) ++end;
    if (end > at && is_name_start(text[at]))
      words.emplace_back(text.substr(at, end - at));
    at = std::max(end, at + 1);
  }
  return words;
}

}  // namespace kiln::render
