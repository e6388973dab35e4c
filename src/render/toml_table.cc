#include "render/toml_table.h"

#include <algorithm>

#include "util/nearest.h"
#include "util/try.h"

namespace kiln::render {
namespace {

/// The node of that key, nullptr if absent. A node of another type is an error; `what`
/// names the type.
template <typename Type>
auto node_of(const TomlTable& table, std::string_view key, std::string_view what)
    -> Result<decltype(table.find(key)->as<Type>())> {
  const toml::node* node = table.find(key);
  if (node != nullptr && node->as<Type>() == nullptr)
    return toml_error(table.file(), *node, "'{}' must be {}", key, what);
  return node == nullptr ? nullptr : node->as<Type>();
}

/// The list of that key; empty if absent. `read` gives nullopt for an element that is
/// not one of `what`.
template <typename Value, typename Read>
Result<std::vector<Value>> list_of(const TomlTable& table, std::string_view key,
                                   std::string_view what, const Read& read) {
  std::vector<Value> out;
  const toml::array* list = KILN_TRY(table.array(key));
  if (list == nullptr)
    return out;
  for (const toml::node& node : *list) {
    std::optional<Value> value = read(node);
    if (!value)
      return toml_error(table.file(), node, "'{}' must be a list of {}", key, what);
    out.push_back(*std::move(value));
  }
  return out;
}

}  // namespace

std::optional<std::string> scalar_text(const toml::node& node) {
  if (const auto* text = node.as_string())
    return text->get();
  if (const auto* number = node.as_integer())
    return fmt::to_string(number->get());
  if (const auto* boolean = node.as_boolean())
    return boolean->get() ? "true" : "false";
  return std::nullopt;
}

Result<toml::table> parse_toml(std::string_view text, std::string_view file,
                               std::size_t most_bytes) {
  if (text.size() > most_bytes)
    return refuse("{}: over the limit of {} bytes", file, most_bytes);
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    return refuse("{}:{}: {}", file, error.source().begin.line, error.description());
  }
}

Result<TomlTable> TomlTable::open(const toml::table& table, std::string_view file,
                                  std::string what,
                                  std::initializer_list<std::string_view> keys) {
  const std::vector<std::string> known(keys.begin(), keys.end());
  for (const auto& [key, node] : table) {
    if (std::ranges::find(known, key.str()) == known.end())
      return refuse("{}:{}: unknown key '{}' in {}{}", file, key.source().begin.line,
                    key.str(), what, did_you_mean(key.str(), known));
  }
  return TomlTable(table, file, std::move(what));
}

tl::unexpected<Error> TomlTable::missing(std::string_view key) const {
  return error("'{}' is missing", key);
}

Result<std::optional<std::string>> TomlTable::string(std::string_view key) const {
  const auto* text = KILN_TRY(node_of<std::string>(*this, key, "a string"));
  if (text == nullptr)
    return std::nullopt;
  if (text->get().find('\0') != std::string::npos)
    return toml_error(file_, *text, "'{}' holds a NUL", key);
  return text->get();
}

Result<std::optional<std::int64_t>> TomlTable::integer(std::string_view key) const {
  const auto* number = KILN_TRY(node_of<std::int64_t>(*this, key, "an integer"));
  return number == nullptr ? std::nullopt : std::optional(number->get());
}

Result<bool> TomlTable::boolean(std::string_view key, bool otherwise) const {
  const auto* value = KILN_TRY(node_of<bool>(*this, key, "true or false"));
  return value == nullptr ? otherwise : value->get();
}

Result<const toml::table*> TomlTable::table(std::string_view key) const {
  return node_of<toml::table>(*this, key, "a table");
}

Result<const toml::array*> TomlTable::array(std::string_view key) const {
  return node_of<toml::array>(*this, key, "a list");
}

Result<std::vector<const toml::table*>> TomlTable::tables(std::string_view key) const {
  return list_of<const toml::table*>(*this, key, "tables", [](const toml::node& node) {
    return node.is_table() ? std::optional(node.as_table()) : std::nullopt;
  });
}

Result<std::vector<std::string>> TomlTable::strings(std::string_view key) const {
  return list_of<std::string>(*this, key, "strings", [](const toml::node& node) {
    return node.value_exact<std::string>();
  });
}

Result<std::vector<std::int64_t>> TomlTable::integers(std::string_view key) const {
  return list_of<std::int64_t>(*this, key, "integers", [](const toml::node& node) {
    return node.value_exact<std::int64_t>();
  });
}

Result<std::string> TomlTable::required_string(std::string_view key) const {
  auto value = KILN_TRY(string(key));
  if (!value)
    return missing(key);
  if (value->empty())
    return error("'{}' is empty", key);
  return *std::move(value);
}

Result<std::int64_t> TomlTable::required_integer(std::string_view key) const {
  const auto value = KILN_TRY(integer(key));
  if (!value)
    return missing(key);
  return *value;
}

Result<const toml::table*> TomlTable::required_table(std::string_view key) const {
  const toml::table* value = KILN_TRY(table(key));
  if (value == nullptr)
    return missing(key);
  return value;
}

}  // namespace kiln::render
