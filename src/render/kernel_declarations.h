// What kernel.toml declares for one kernel: the file's top and its [[kernel]] merged.
// Nothing is interpreted yet but the merging itself.

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kiln/result.h"
#include "render/toml_table.h"

namespace kiln::render {

/// A key and its value, with the place that messages point at.
struct Declared {
  std::string name;
  const toml::node* node;
};

/// Views of a TOML document that outlives this.
struct Declarations {
  std::string_view file;
  std::string name;
  std::string summary;
  std::vector<std::string> entry_points;
  std::vector<std::string> sources;  // files, in the order of their texts
  std::vector<Declared> parameters;  // each list in the order written
  std::vector<Declared> constants;
  std::vector<Declared> derived;
  std::vector<const toml::table*> constraints;
  const toml::table* kernel = nullptr;  // [[kernel]] itself
  const toml::table* targets = nullptr;
  const toml::table* launch = nullptr;
  const toml::array* default_set = nullptr;
  const toml::array* quick = nullptr;  // may stay null
};

/// One for each [[kernel]] of the document; everything else that is required is there.
/// Errors: kInvalidArgument "<file>:<line>: ...", for an unknown or missing key too.
[[nodiscard]] Result<std::vector<Declarations>> read_declarations(
    const toml::table& document, std::string_view file);

/// `[a-z][a-z0-9_]*`, at most 64 characters, no word of the expression language.
[[nodiscard]] bool is_declarable_name(std::string_view name);

/// The entries of a table in the order written.
[[nodiscard]] std::vector<Declared> in_order(const toml::table& table);

}  // namespace kiln::render
