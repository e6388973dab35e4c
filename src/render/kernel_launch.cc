// The rest of kernel_values.h: targets, launch and sets.

#include <fmt/format.h>

#include <algorithm>

#include "device/architecture.h"
#include "render/kernel_values.h"
#include "util/nearest.h"
#include "util/try.h"

namespace kiln::render {

namespace {

constexpr std::size_t kMaxProducts = 250;

Result<device::ComputeCapability> read_capability(const TomlTable& table,
                                                  std::string_view key) {
  const std::string text = KILN_TRY(table.required_string(key));
  auto architecture = device::parse_architecture(text);
  if (!architecture)
    return table.error("{}", architecture.error().message);
  if (architecture->suffix != device::ArchSuffix::kNone)
    return table.error("'{}': a limit is a compute capability, without suffix", text);
  return architecture->capability;
}

Result<TargetLimit> read_limit(std::string_view file, const toml::table& node,
                               const SymbolTable& symbols) {
  const TomlTable table = KILN_TRY(
      TomlTable::open(node, file, "targets.limits", {"when", "minimum", "reason"}));
  const toml::node* when = table.find("when");
  if (when == nullptr)
    return table.missing("when");
  Expression expression =
      KILN_TRY(read_expression(file, *when, ValueType::kBoolean, symbols));
  const auto minimum = KILN_TRY(read_capability(table, "minimum"));
  std::string reason = KILN_TRY(table.required_string("reason"));
  return TargetLimit{std::move(expression), minimum, std::move(reason)};
}

/// One to three integer expressions.
Result<std::vector<Expression>> read_extent(const TomlTable& table,
                                            std::string_view key,
                                            const SymbolTable& symbols) {
  std::vector<Expression> out;
  const toml::array* list = KILN_TRY(table.array(key));
  if (list == nullptr)
    return out;
  for (const toml::node& node : *list)
    out.push_back(
        KILN_TRY(read_expression(table.file(), node, ValueType::kInteger, symbols)));
  if (out.empty() || out.size() > 3)
    return toml_error(table.file(), *list, "'{}' is one to three expressions", key);
  return out;
}

Result<LaunchArgument> read_argument(std::string_view file, const Declared& declared) {
  if (const auto* meaning = declared.node->as_string())
    return LaunchArgument{declared.name, meaning->get()};
  const toml::table* node = declared.node->as_table();
  if (node == nullptr)
    return toml_error(file, *declared.node,
                      "launch argument '{}' must be its meaning, or a table",
                      declared.name);
  const TomlTable table = KILN_TRY(
      TomlTable::open(*node, file, fmt::format("launch argument '{}'", declared.name),
                      {"meaning", "default"}));
  std::string meaning = KILN_TRY(table.required_string("meaning"));
  LaunchArgument out{declared.name, std::move(meaning)};
  out.default_value = KILN_TRY(table.integer("default"));
  if (out.default_value && *out.default_value < 0)
    return table.error("'default' is negative");
  return out;
}

/// Returns the kernel's symbols, followed by its launch arguments.
Result<SymbolTable> read_arguments(const TomlTable& table, KernelParts& to) {
  SymbolTable symbols = to.symbols;
  const toml::table* arguments = KILN_TRY(table.required_table("arguments"));
  for (const Declared& declared : in_order(*arguments)) {
    if (!is_declarable_name(declared.name) ||
        !symbols.add(declared.name, ValueType::kInteger))
      return toml_error(table.file(), *declared.node,
                        "launch argument '{}' is no name, or the name is taken",
                        declared.name);
    to.arguments.push_back(KILN_TRY(read_argument(table.file(), declared)));
  }
  return symbols;
}

struct PartialGeometry {
  std::vector<Expression> grid{};   // empty: not declared
  std::vector<Expression> block{};  // empty: not declared
  std::optional<Expression> shared_bytes{};
};

Result<PartialGeometry> read_geometry(const TomlTable& table,
                                      const SymbolTable& symbols) {
  PartialGeometry out;
  out.grid = KILN_TRY(read_extent(table, "grid", symbols));
  out.block = KILN_TRY(read_extent(table, "block", symbols));
  if (const toml::node* shared = table.find("shared_bytes"))
    out.shared_bytes =
        KILN_TRY(read_expression(table.file(), *shared, ValueType::kInteger, symbols));
  return out;
}

Result<void> read_entries(const TomlTable& launch, const PartialGeometry& common,
                          const SymbolTable& symbols, KernelParts& to) {
  const toml::table* entries = KILN_TRY(launch.table("entry"));
  for (const std::string& entry : to.entry_points) {
    PartialGeometry own;
    const toml::node* node = entries == nullptr ? nullptr : entries->get(entry);
    if (node != nullptr && node->as_table() == nullptr)
      return toml_error(launch.file(), *node, "must be a table");
    if (node != nullptr) {
      const TomlTable table = KILN_TRY(
          TomlTable::open(*node->as_table(), launch.file(), "launch.entry." + entry,
                          {"grid", "block", "shared_bytes"}));
      own = KILN_TRY(read_geometry(table, symbols));
    }
    if (own.grid.empty())
      own.grid = common.grid;
    if (own.block.empty())
      own.block = common.block;
    if (!own.shared_bytes)
      own.shared_bytes = common.shared_bytes;
    if (own.grid.empty() || own.block.empty())
      return launch.error("no grid or no block for entry point '{}'", entry);
    to.geometries.push_back(
        {std::move(own.grid), std::move(own.block),
         own.shared_bytes.value_or(Expression::constant(0, ValueType::kInteger))});
  }
  if (entries == nullptr)
    return {};
  for (const Declared& declared : in_order(*entries)) {
    const auto& known = to.entry_points;
    if (std::ranges::find(known, declared.name) == known.end())
      return toml_error(launch.file(), *declared.node, "no entry point '{}'{}",
                        declared.name, did_you_mean(declared.name, known));
  }
  return {};
}

Result<SetProduct> read_product(std::string_view file, const toml::node& node) {
  const toml::table* table = node.as_table();
  if (table == nullptr)
    return toml_error(file, node, "a product is a table {{ parameter = values, ... }}");
  SetProduct out;
  out.line = node.source().begin.line;
  for (const Declared& declared : in_order(*table)) {
    std::vector<std::string>& values = out.values[declared.name];
    if (const auto text = scalar_text(*declared.node)) {
      values.push_back(*text);
      continue;
    }
    const toml::array* list = declared.node->as_array();
    if (list == nullptr || list->empty())
      return toml_error(file, *declared.node,
                        "'{}' must be a value or a list of values", declared.name);
    for (const toml::node& element : *list) {
      const auto text = scalar_text(element);
      if (!text)
        return toml_error(file, element, "must be a string, an integer or a boolean");
      values.push_back(*text);
    }
  }
  return out;
}

Result<std::vector<SetProduct>> read_products(std::string_view file,
                                              const toml::array* list) {
  std::vector<SetProduct> out;
  if (list == nullptr)
    return out;
  if (list->empty() || list->size() > kMaxProducts)
    return toml_error(file, *list, "a set is 1 to {} products", kMaxProducts);
  for (const toml::node& node : *list)
    out.push_back(KILN_TRY(read_product(file, node)));
  return out;
}

}  // namespace

Result<void> read_targets(const Declarations& from, KernelParts& to) {
  const TomlTable table =
      KILN_TRY(TomlTable::open(*from.targets, from.file, "[targets]",
                               {"minimum", "maximum", "suffixed", "limits"}));
  to.targets.minimum = KILN_TRY(read_capability(table, "minimum"));
  if (table.find("maximum") != nullptr)
    to.targets.maximum = KILN_TRY(read_capability(table, "maximum"));
  for (const std::string& text : KILN_TRY(table.strings("suffixed"))) {
    const auto architecture = device::parse_architecture(text);
    if (!architecture)
      return table.error("{}", architecture.error().message);
    if (architecture->suffix == device::ArchSuffix::kNone)
      return table.error("suffixed '{}' has no suffix a or f", text);
    to.targets.suffixed.push_back(*architecture);
  }
  for (const toml::table* limit : KILN_TRY(table.tables("limits")))
    to.targets.limits.push_back(KILN_TRY(read_limit(from.file, *limit, to.symbols)));
  return {};
}

Result<void> read_launch(const Declarations& from, KernelParts& to) {
  const TomlTable table = KILN_TRY(TomlTable::open(
      *from.launch, from.file, "[launch]",
      {"arguments", "require", "grid", "block", "shared_bytes", "entry"}));
  const SymbolTable symbols = KILN_TRY(read_arguments(table, to));
  const auto require = KILN_TRY(table.tables("require"));
  to.require = KILN_TRY(read_conditions(from.file, "launch.require", require, symbols));
  const PartialGeometry common = KILN_TRY(read_geometry(table, symbols));
  KILN_TRY(read_entries(table, common, symbols, to));
  return {};
}

Result<SetDeclarations> read_sets(const Declarations& from) {
  SetDeclarations out;
  out.default_set = KILN_TRY(read_products(from.file, from.default_set));
  out.quick = KILN_TRY(read_products(from.file, from.quick));
  return out;
}

}  // namespace kiln::render
