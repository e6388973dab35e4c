#include "render/kernel_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "render/kernel_spec.h"
#include "util/try.h"

namespace kiln::render {

namespace {

constexpr std::size_t kMaxValues = 64;  // of an enum

Result<void> read_enum_values(const TomlTable& table, Parameter& out) {
  const toml::array* values = KILN_TRY(table.array("values"));
  if (values == nullptr)
    return table.missing("values");
  for (const toml::node& node : *values) {
    const auto text = scalar_text(node);
    const bool word = node.is_string() && is_declarable_name(*text);
    const bool number = node.is_integer() && node.as_integer()->get() >= 0;
    if (!word && !number)
      return toml_error(table.file(), node,
                        "an enum's values are words in lower-case letters, digits and "
                        "'_', and integers from 0");
    if (std::ranges::find(out.values, *text) != out.values.end())
      return toml_error(table.file(), node, "the value '{}' is given twice", *text);
    out.values.push_back(*text);
  }
  if (out.values.empty() || out.values.size() > kMaxValues)
    return table.error("an enum has 1 to {} values", kMaxValues);
  return {};
}

Result<void> read_integer_range(const TomlTable& table, Parameter& out) {
  out.min = KILN_TRY(table.required_integer("min"));
  out.max = KILN_TRY(table.required_integer("max"));
  out.power_of_two = KILN_TRY(table.boolean("power_of_two", false));
  bool any = out.min <= out.max;
  if (any && out.power_of_two) {
    any = false;
    for (int shift = 0; shift < 63; ++shift) {
      const std::int64_t power = std::int64_t{1} << shift;
      any = any || (power >= out.min && power <= out.max);
    }
  }
  if (!any)
    return table.error("min, max and power_of_two admit no value");
  return {};
}

Result<void> read_default(const TomlTable& table, Parameter& out) {
  const bool required = KILN_TRY(table.boolean("required", false));
  const toml::node* node = table.find("default");
  if (required == (node != nullptr))
    return table.error("needs either 'default' or 'required = true'");
  if (node == nullptr)
    return {};
  const auto text = scalar_text(*node);
  if (!text)
    return toml_error(table.file(), *node, "'default' must be a value");
  out.default_value =
      KILN_TRY(located(table.file(), *node, canonical_value(out, *text)));
  return {};
}

Result<Parameter> read_parameter(std::string_view file, const Declared& declared) {
  const toml::table* node = declared.node->as_table();
  if (node == nullptr)
    return toml_error(file, *declared.node, "parameter '{}' must be a table",
                      declared.name);
  const std::string what = fmt::format("parameter '{}'", declared.name);
  const std::string type = (*node)["type"].value_or("");
  const TomlTable table = KILN_TRY(
      type == "integer" ? TomlTable::open(*node, file, what,
                                          {"type", "min", "max", "power_of_two",
                                           "default", "required", "meaning"})
      : type == "boolean"
          ? TomlTable::open(*node, file, what,
                            {"type", "default", "required", "meaning"})
          : TomlTable::open(*node, file, what,
                            {"type", "values", "default", "required", "meaning"}));
  Parameter out;
  out.name = declared.name;
  if (type == "enum") {
    KILN_TRY(read_enum_values(table, out));
  } else if (type == "integer") {
    out.type = ParameterType::kInteger;
    KILN_TRY(read_integer_range(table, out));
  } else if (type == "boolean") {
    out.type = ParameterType::kBoolean;
    out.values = {"false", "true"};
  } else {
    return table.error("type '{}' is not known; enum, integer or boolean", type);
  }
  KILN_TRY(read_default(table, out));
  out.meaning = KILN_TRY(table.required_string("meaning"));
  return out;
}

/// The slot of the new name; an error if the name exists already.
Result<std::size_t> add_symbol(std::string_view file, const toml::node& node,
                               std::string name,
                               std::pair<ValueType, SymbolTable&> to) {
  const auto slot = to.second.add(name, to.first);
  if (!slot)
    return toml_error(file, node, "the name '{}' is taken", name);
  return *slot;
}

Result<void> add_parameter_symbols(std::string_view file, const toml::node& node,
                                   const Parameter& parameter, KernelParts& to) {
  const auto add = [&](std::string name, ValueType type) {
    return add_symbol(file, node, std::move(name), {type, to.symbols});
  };
  ParameterSlots slots;
  const bool has_number =
      parameter.type != ParameterType::kEnum ||
      std::ranges::any_of(parameter.values,
                          [](const std::string& value) { return value[0] <= '9'; });
  if (has_number)
    slots.value = KILN_TRY(add(parameter.name, parameter.type == ParameterType::kBoolean
                                                   ? ValueType::kBoolean
                                                   : ValueType::kInteger));
  if (parameter.type == ParameterType::kEnum) {
    for (const std::string& value : parameter.values)
      slots.flags.push_back(KILN_TRY(
          add(fmt::format("{}_is_{}", parameter.name, value), ValueType::kBoolean)));
  }
  to.slots.push_back(std::move(slots));
  return {};
}

/// Depth first, so that a derived value comes after those that it uses.
class DerivedReader {
 public:
  DerivedReader(const Declarations& from, KernelParts& to) : from_(from), to_(to) {
    for (const Declared& declared : from.derived)
      by_name_.emplace(declared.name, &declared);
  }

  Result<void> read(const Declared& declared) {  // NOLINT(misc-no-recursion): bounded
    if (done_.contains(declared.name))
      return {};
    path_.push_back(declared.name);
    if (std::ranges::count(path_, declared.name) > 1)
      return toml_error(from_.file, *declared.node, "derived values in a circle: {}",
                        fmt::join(path_, " needs "));
    if (const auto* text = declared.node->as_string()) {
      for (const std::string& word : Expression::words_in(text->get())) {
        if (const auto at = by_name_.find(word); at != by_name_.end())
          KILN_TRY(read(*at->second));
      }
    }
    path_.pop_back();
    return add(declared);
  }

 private:
  Result<void> add(const Declared& declared) {
    Expression expression = KILN_TRY(
        read_expression(from_.file, *declared.node, std::nullopt, to_.symbols));
    const std::size_t slot = KILN_TRY(add_symbol(
        from_.file, *declared.node, declared.name, {expression.type(), to_.symbols}));
    to_.derived.push_back({declared.name, std::move(expression), slot});
    done_.insert(declared.name);
    return {};
  }

  const Declarations& from_;
  KernelParts& to_;
  std::map<std::string, const Declared*> by_name_;
  std::set<std::string> done_;
  std::vector<std::string> path_;
};

}  // namespace

Result<Expression> read_expression(std::string_view file, const toml::node& node,
                                   std::optional<ValueType> type,
                                   const SymbolTable& symbols) {
  const std::string_view wanted =
      type == ValueType::kBoolean ? "a boolean" : "an integer";
  if (const auto* text = node.as_string()) {
    auto expression =
        KILN_TRY(located(file, node, Expression::parse(text->get(), symbols)));
    if (type && expression.type() != *type)
      return toml_error(file, node, "'{}' must be {}", text->get(), wanted);
    return expression;
  }
  if (const auto* number = node.as_integer(); number && type != ValueType::kBoolean)
    return Expression::constant(number->get(), ValueType::kInteger);
  if (const auto* boolean = node.as_boolean(); boolean && type != ValueType::kInteger)
    return Expression::constant(boolean->get() ? 1 : 0, ValueType::kBoolean);
  return toml_error(file, node, "must be an expression, or {} itself", wanted);
}

Result<std::vector<Condition>> read_conditions(
    std::string_view file, std::string_view what,
    const std::vector<const toml::table*>& tables, const SymbolTable& symbols) {
  std::vector<Condition> out;
  for (const toml::table* node : tables) {
    const TomlTable table =
        KILN_TRY(TomlTable::open(*node, file, std::string(what), {"that", "message"}));
    const toml::node* that = table.find("that");
    if (that == nullptr)
      return table.missing("that");
    Expression expression =
        KILN_TRY(read_expression(file, *that, ValueType::kBoolean, symbols));
    std::string message = KILN_TRY(table.required_string("message"));
    out.push_back({std::move(expression), std::move(message)});
  }
  return out;
}

Result<void> read_parameters(const Declarations& from, KernelParts& to) {
  for (const Declared& declared : from.parameters) {
    to.parameters.push_back(KILN_TRY(read_parameter(from.file, declared)));
    KILN_TRY(
        add_parameter_symbols(from.file, *declared.node, to.parameters.back(), to));
  }
  return {};
}

Result<void> read_constants(const Declarations& from, KernelParts& to) {
  for (const Declared& declared : from.constants) {
    const auto text = scalar_text(*declared.node);
    if (!text ||
        text->find_first_of(std::string_view("\n\r\0", 3)) != std::string::npos)
      return toml_error(from.file, *declared.node,
                        "constant '{}' must be a string of one line, an "
                        "integer or a boolean",
                        declared.name);
    Constant constant{declared.name, *text};
    if (const auto* number = declared.node->as_integer()) {
      constant.value = number->get();
      constant.slot = KILN_TRY(add_symbol(from.file, *declared.node, declared.name,
                                          {ValueType::kInteger, to.symbols}));
    } else if (const auto* boolean = declared.node->as_boolean()) {
      constant.value = boolean->get() ? 1 : 0;
      constant.slot = KILN_TRY(add_symbol(from.file, *declared.node, declared.name,
                                          {ValueType::kBoolean, to.symbols}));
    }
    to.constants.push_back(std::move(constant));
  }
  return {};
}

Result<void> read_derived(const Declarations& from, KernelParts& to) {
  DerivedReader reader(from, to);
  for (const Declared& declared : from.derived) KILN_TRY(reader.read(declared));
  return {};
}

Result<void> read_constraints(const Declarations& from, KernelParts& to) {
  to.constraints =
      KILN_TRY(read_conditions(from.file, "constraints", from.constraints, to.symbols));
  return {};
}

}  // namespace kiln::render
