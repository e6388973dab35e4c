// Strict access to one table of a TOML file: an unexpected key is an error. All
// messages are "<file>:<line>: <what>".

#pragma once

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"
#include "util/try.h"

namespace kiln::render {

/// kInvalidArgument "<file>:<line>: <what>", with the line where `node` begins.
template <typename... Values>
[[nodiscard]] tl::unexpected<Error> toml_error(std::string_view file,
                                               const toml::node& node,
                                               fmt::format_string<Values...> what,
                                               Values&&... values) {
  return refuse("{}:{}: {}", file, node.source().begin.line,
                fmt::format(what, std::forward<Values>(values)...));
}

/// `result`; its error becomes one of `node`.
template <typename T>
[[nodiscard]] Result<T> located(std::string_view file, const toml::node& node,
                                Result<T> result) {
  if (!result)
    return toml_error(file, node, "{}", result.error().message);
  return result;
}

/// The text of a string, integer or boolean; nullopt for any other node.
[[nodiscard]] std::optional<std::string> scalar_text(const toml::node& node);

/// Parses all of `text`; the only place where toml++ may throw. Errors:
/// kInvalidArgument "<file>:<line>: <what>"; a text of more than `most_bytes`.
[[nodiscard]] Result<toml::table> parse_toml(std::string_view text,
                                             std::string_view file,
                                             std::size_t most_bytes);

/// Views into a document, which must outlive this.
/// Thread safety: none.
class TomlTable {
 public:
  /// `what` names the table in messages: "[launch]". Errors: a key that is not in
  /// `keys`, with the nearest one.
  [[nodiscard]] static Result<TomlTable> open(
      const toml::table& table, std::string_view file, std::string what,
      std::initializer_list<std::string_view> keys);

  /// The node of that key, or nullptr.
  [[nodiscard]] const toml::node* find(std::string_view key) const {
    return table_->get(key);
  }

  /// As below, but a missing key is an error.
  [[nodiscard]] Result<std::string> required_string(std::string_view key) const;
  [[nodiscard]] Result<std::int64_t> required_integer(std::string_view key) const;
  [[nodiscard]] Result<const toml::table*> required_table(std::string_view key) const;

  /// Absent or of that type; another type is an error.
  [[nodiscard]] Result<std::optional<std::string>> string(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::int64_t>> integer(std::string_view key) const;
  [[nodiscard]] Result<bool> boolean(std::string_view key, bool otherwise) const;
  [[nodiscard]] Result<const toml::table*> table(std::string_view key) const;
  [[nodiscard]] Result<const toml::array*> array(std::string_view key) const;
  /// An array of tables; empty if absent.
  [[nodiscard]] Result<std::vector<const toml::table*>> tables(
      std::string_view key) const;
  /// An array of strings; empty if absent.
  [[nodiscard]] Result<std::vector<std::string>> strings(std::string_view key) const;

  /// An array of integers; empty if absent.
  [[nodiscard]] Result<std::vector<std::int64_t>> integers(std::string_view key) const;

  [[nodiscard]] std::string_view file() const { return file_; }
  template <typename... Values>
  [[nodiscard]] tl::unexpected<Error> error(fmt::format_string<Values...> what,
                                            Values&&... values) const {
    return toml_error(file_, *table_, "{}: {}", what_,
                      fmt::format(what, std::forward<Values>(values)...));
  }
  [[nodiscard]] tl::unexpected<Error> missing(std::string_view key) const;

 private:
  TomlTable(const toml::table& table, std::string_view file, std::string what)
      : table_(&table), file_(file), what_(std::move(what)) {}

  const toml::table* table_;  // never null
  std::string_view file_;
  std::string what_;
};

}  // namespace kiln::render
