// What kernel.toml declares for one kernel: the top of the file merged with its
// [[kernel]]. Nothing else is interpreted yet.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"
#include "render/toml_table.h"

namespace kiln::render {

/// A key and its value; messages name the value's line.
struct Declared {
  std::string name;
  const toml::node* node;
};

/// Views into a TOML document, which must outlive this.
struct Declarations {
  std::string_view file;
  std::string name;
  std::string summary;
  std::vector<std::string> entry_points;
  std::vector<std::string> sources;  // file names, in the order of the texts
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

/// One per [[kernel]] of the document; all required keys are there.
/// Errors: kInvalidArgument "<file>:<line>: ...", also for an unknown or missing key.
[[nodiscard]] Result<std::vector<Declarations>> read_declarations(
    const toml::table& document, std::string_view file);

/// `[a-z][a-z0-9_]*`, at most 64 characters, not a word of the expression language.
[[nodiscard]] bool is_declarable_name(std::string_view name);

/// The entries of a table in the order written.
[[nodiscard]] std::vector<Declared> in_order(const toml::table& table);

}  // namespace kiln::render
