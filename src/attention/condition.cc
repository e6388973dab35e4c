#include "attention/condition.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "device/architecture.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln::attention {
namespace {

constexpr std::array<std::pair<std::string_view, Comparison>, 7> kOperators{
    {{"==", Comparison::kEqual},
     {"!=", Comparison::kNotEqual},
     {"<", Comparison::kLess},
     {"<=", Comparison::kLessEqual},
     {">", Comparison::kGreater},
     {">=", Comparison::kGreaterEqual},
     {"in", Comparison::kIn}}};

Result<double> parse_real(std::string_view text) {
  const auto value = number_of<double>(text);
  if (!value || !std::isfinite(*value))
    return refuse("'{}' is no number", text);
  return *value;
}

Result<FieldValue> word_value(const Field& field, std::string_view text) {
  const auto position = position_of(text, field.words);
  if (!position)
    return refuse("{}: {}", field.name, position.error().message);
  return field.words[*position];
}

Result<Comparison> parse_operator(std::span<const std::string_view>& words) {
  if (words.size() >= 2 && words[0] == "not" && words[1] == "in") {
    words = words.subspan(2);
    return Comparison::kNotIn;
  }
  for (const auto& [word, comparison] : kOperators) {
    if (!words.empty() && words[0] == word) {
      words = words.subspan(1);
      return comparison;
    }
  }
  return refuse("after the field comes ==, !=, <, <=, >, >=, in or not in{}",
                words.empty() ? "" : fmt::format(", not '{}'", words[0]));
}

bool compare(const FieldValue& left, Comparison comparison, const FieldValue& right) {
  switch (comparison) {
    case Comparison::kEqual:
    case Comparison::kIn:
      return left == right;
    case Comparison::kNotEqual:
    case Comparison::kNotIn:
      return left != right;
    case Comparison::kLess:
      return left < right;
    case Comparison::kLessEqual:
      return left <= right;
    case Comparison::kGreater:
      return left > right;
    case Comparison::kGreaterEqual:
      return left >= right;
  }
  return false;
}

bool compares_true(const Condition& condition, const RuleQuestion& question) {
  FieldValue left = condition.field->read(question);
  if (condition.modulo != 0)
    left = std::fmod(std::get<double>(left), condition.modulo);
  const auto matches = [&](const Operand& operand) {
    return compare(left, condition.comparison, value_of(operand, question));
  };
  // With "not in", no operand may match. Only "in" and "not in" have several operands.
  return condition.comparison == Comparison::kNotIn
             ? std::ranges::all_of(condition.operands, matches)
             : std::ranges::any_of(condition.operands, matches);
}

}  // namespace

Result<Operand> parse_operand(const Field& field, std::string_view text) {
  for (const Field& other : fields()) {
    if (other.name == text && other.kind == field.kind)
      return &other;
  }
  switch (field.kind) {
    case FieldKind::kNumber:
      return FieldValue(KILN_TRY(parse_real(text)));
    case FieldKind::kFlag:
      if (text != "true" && text != "false")
        return refuse("{} is true or false, not '{}'", field.name, text);
      return FieldValue(text == "true" ? 1.0 : 0.0);
    case FieldKind::kWord:
      return KILN_TRY(word_value(field, text));
    case FieldKind::kVersion:
      return FieldValue(
          static_cast<double>(encoded(KILN_TRY(parse_cudnn_version(text)))));
    case FieldKind::kArch: {
      const auto arch = KILN_TRY(device::parse_architecture(text)).capability;
      return FieldValue(arch.major * 100.0 + arch.minor);
    }
  }
  return refuse("no such kind of field");
}

FieldValue value_of(const Operand& operand, const RuleQuestion& question) {
  if (const auto* const field = std::get_if<const Field*>(&operand))
    return (*field)->read(question);
  return std::get<FieldValue>(operand);
}

Result<Condition> parse_comparison(std::string_view text) {
  const auto all = parts_of(text, " ");
  std::span<const std::string_view> words(all);
  if (words.size() == 1 && words[0] == "never")
    return Condition{.kind = Condition::Kind::kNever};
  if (words.empty())
    return refuse("an empty condition");
  Condition condition{.kind = Condition::Kind::kCompare,
                      .field = KILN_TRY(find_field(words[0]))};
  words = words.subspan(1);
  if (words.empty() && condition.field->kind == FieldKind::kFlag) {
    condition.operands.emplace_back(FieldValue(1.0));
    return condition;
  }
  if (words.size() >= 2 && words[0] == "%") {
    if (condition.field->kind != FieldKind::kNumber)
      return refuse("{} has no remainder", condition.field->name);
    condition.modulo = KILN_TRY(parse_real(words[1]));
    if (!(condition.modulo > 0))
      return refuse("no remainder of a division by '{}'", words[1]);
    words = words.subspan(2);
  }
  condition.comparison = KILN_TRY(parse_operator(words));
  const bool is_list = condition.comparison == Comparison::kIn ||
                       condition.comparison == Comparison::kNotIn;
  if (words.empty() || (!is_list && words.size() > 1))
    return refuse("'{}': {} after the operator", text,
                  words.empty() ? "nothing" : "more than one value");
  const bool has_order = condition.comparison != Comparison::kEqual &&
                         condition.comparison != Comparison::kNotEqual && !is_list;
  if (has_order && (condition.field->kind == FieldKind::kWord ||
                    condition.field->kind == FieldKind::kFlag))
    return refuse("'{}': {} has no order", text, condition.field->name);
  for (const std::string_view word : words)
    condition.operands.push_back(KILN_TRY(parse_operand(*condition.field, word)));
  return condition;
}

bool holds(const Condition& condition, const RuleQuestion& question) {
  const auto part_holds = [&](const Condition& part) { return holds(part, question); };
  switch (condition.kind) {
    case Condition::Kind::kAll:
      return std::ranges::all_of(condition.parts, part_holds);
    case Condition::Kind::kAny:
      return std::ranges::any_of(condition.parts, part_holds);
    case Condition::Kind::kNot:
      return !std::ranges::all_of(condition.parts, part_holds);
    case Condition::Kind::kCompare:
      return compares_true(condition, question);
    case Condition::Kind::kNever:
      break;
  }
  return false;
}

bool compares_cudnn(const Condition& condition) {
  return (condition.field != nullptr && condition.field->kind == FieldKind::kVersion) ||
         std::ranges::any_of(condition.parts, compares_cudnn);
}

void collect_versions(const Condition& condition, std::vector<CudnnVersion>& versions) {
  if (condition.field != nullptr && condition.field->kind == FieldKind::kVersion) {
    for (const Operand& operand : condition.operands) {
      const auto* const value = std::get_if<FieldValue>(&operand);
      if (value != nullptr)
        versions.push_back(decoded(static_cast<long>(std::get<double>(*value))));
    }
  }
  for (const Condition& part : condition.parts) collect_versions(part, versions);
}

}  // namespace kiln::attention
