// One table of a TOML file, read key by key and strictly: a key that nobody asked for
// is an error. All messages are "<file>:<line>: <what>".

#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"

namespace kiln::render {

/// kInvalidArgument "<file>:<line>: <what>" where `node` begins.
[[nodiscard]] tl::unexpected<Error> toml_error(std::string_view file,
                                               const toml::node& node,
                                               std::string_view what);

/// The views are of a document that outlives this.
/// Thread safety: none.
class TomlTable {
 public:
  /// `what` names the table in messages: "[launch]".
  TomlTable(const toml::table& table, std::string_view file, std::string what)
      : table_(table), file_(file), what_(std::move(what)) {}

  /// The node of that key, or nullptr; the key now counts as known.
  const toml::node* find(std::string_view key);

  /// As below; a key that is missing is an error.
  [[nodiscard]] Result<std::string> required_string(std::string_view key);
  [[nodiscard]] Result<std::int64_t> required_integer(std::string_view key);
  [[nodiscard]] Result<const toml::table*> required_table(std::string_view key);

  /// Absent or of that type; another type is an error.
  [[nodiscard]] Result<std::optional<std::string>> string(std::string_view key);
  [[nodiscard]] Result<std::optional<std::int64_t>> integer(std::string_view key);
  [[nodiscard]] Result<bool> boolean(std::string_view key, bool otherwise);
  [[nodiscard]] Result<const toml::table*> table(std::string_view key);
  [[nodiscard]] Result<const toml::array*> array(std::string_view key);
  /// An array of tables; empty if absent.
  [[nodiscard]] Result<std::vector<const toml::table*>> tables(std::string_view key);
  /// An array of strings; empty if absent.
  [[nodiscard]] Result<std::vector<std::string>> strings(std::string_view key);

  /// To be called when every key was asked for. Errors: a key that nobody asked for,
  /// with the nearest of those that were.
  [[nodiscard]] Result<void> finish() const;

  [[nodiscard]] const toml::table& node() const { return table_; }
  [[nodiscard]] std::string_view file() const { return file_; }
  [[nodiscard]] tl::unexpected<Error> error(std::string_view what) const;
  [[nodiscard]] tl::unexpected<Error> missing(std::string_view key) const;

 private:
  const toml::table& table_;
  std::string_view file_;
  std::string what_;
  std::vector<std::string> known_;
};

}  // namespace kiln::render
