#include "render/kernel_declarations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "util/ascii.h"
#include "util/try.h"

namespace kiln::render {

namespace {

constexpr std::size_t kMaxNameBytes = 64;
constexpr std::size_t kMaxDeclared = 64;  // per kind
constexpr std::size_t kMaxKernels = 64;   // per file
constexpr std::size_t kMaxSources = 8;    // per kernel

bool is_c_identifier(std::string_view name) {
  return !name.empty() && name.size() <= 255 && is_name_start(name.front()) &&
         std::ranges::all_of(name, is_name_char);
}

Result<void> append_entries(const TomlTable& table, std::string_view key,
                            std::vector<Declared>& out) {
  const toml::table* entries = KILN_TRY(table.table(key));
  if (entries == nullptr)
    return {};
  for (Declared& entry : in_order(*entries)) {
    if (!is_declarable_name(entry.name))
      return toml_error(table.file(), *entry.node,
                        "'{}' cannot be a name in [{}]: lower-case letters, digits "
                        "and '_', and no word of the expression language",
                        entry.name, key);
    if (std::ranges::find(out, entry.name, &Declared::name) != out.end())
      return toml_error(table.file(), *entry.node,
                        "'{}' is in the [{}] at the top of the file already",
                        entry.name, key);
    out.push_back(std::move(entry));
  }
  if (out.size() > kMaxDeclared)
    return table.error("over {} {}", kMaxDeclared, key);
  return {};
}

bool is_source_name(std::string_view name) {
  constexpr std::string_view kNever("/\"\\\n\r\0", 6);
  return name.ends_with(".cu.mustache") &&
         name.find_first_of(kNever) == std::string_view::npos;
}

/// `source`: a name or a list of names; empty if it is missing.
Result<std::vector<std::string>> read_sources(const TomlTable& table) {
  const toml::node* node = table.find("source");
  if (node == nullptr)
    return std::vector<std::string>();
  std::vector<std::string> sources;
  if (node->is_array())
    sources = KILN_TRY(table.strings("source"));
  else if (auto source = KILN_TRY(table.string("source")))
    sources = {*std::move(source)};
  if (sources.empty() || sources.size() > kMaxSources)
    return toml_error(table.file(), *node, "'source' has 1 to {} files", kMaxSources);
  std::set<std::string> seen;
  for (const std::string& name : sources) {
    if (!is_source_name(name))
      return toml_error(
          table.file(), *node,
          "source '{}' must be the name of a *.cu.mustache beside kernel.toml", name);
    if (!seen.insert(name).second)
      return toml_error(table.file(), *node, "source '{}' is given twice", name);
  }
  return sources;
}

/// Reads the keys that both the top and a [[kernel]] may have; adds or replaces.
Result<void> read_common(const TomlTable& table, Declarations& out) {
  KILN_TRY(append_entries(table, "parameters", out.parameters));
  KILN_TRY(append_entries(table, "constants", out.constants));
  KILN_TRY(append_entries(table, "derived", out.derived));
  for (const toml::table* constraint : KILN_TRY(table.tables("constraints")))
    out.constraints.push_back(constraint);
  if (auto sources = KILN_TRY(read_sources(table)); !sources.empty())
    out.sources = std::move(sources);
  if (const toml::table* targets = KILN_TRY(table.table("targets")))
    out.targets = targets;
  if (const toml::table* launch = KILN_TRY(table.table("launch")))
    out.launch = launch;
  if (const toml::array* set = KILN_TRY(table.array("default_set")))
    out.default_set = set;
  if (const toml::array* quick = KILN_TRY(table.array("quick")))
    out.quick = quick;
  return {};
}

Result<void> check_complete(const TomlTable& table, const Declarations& out) {
  if (out.sources.empty())
    return table.missing("source");
  if (out.targets == nullptr)
    return table.missing("targets");
  if (out.launch == nullptr)
    return table.missing("launch");
  if (out.default_set == nullptr)
    return table.missing("default_set");
  return {};
}

Result<Declarations> read_kernel(Declarations shared, const toml::table& node) {
  const TomlTable table = KILN_TRY(TomlTable::open(
      node, shared.file, "[[kernel]]",
      {"name", "summary", "entry_points", "source", "parameters", "constants",
       "derived", "constraints", "targets", "launch", "default_set", "quick"}));
  Declarations out = std::move(shared);
  out.kernel = &node;
  out.name = KILN_TRY(table.required_string("name"));
  if (!is_declarable_name(out.name))
    return table.error(
        "'{}' cannot be a kernel's name: lower-case letters, digits and '_'", out.name);
  out.summary = KILN_TRY(table.required_string("summary"));
  if (out.summary.find('\n') != std::string::npos)
    return table.error("the summary is one line");
  out.entry_points = KILN_TRY(table.strings("entry_points"));
  if (out.entry_points.empty())
    out.entry_points = {out.name};
  std::set<std::string> seen;
  for (const std::string& entry : out.entry_points) {
    if (!is_c_identifier(entry) || !seen.insert(entry).second)
      return table.error("entry point '{}' is no C identifier, or is given twice",
                         entry);
  }
  KILN_TRY(read_common(table, out));
  KILN_TRY(check_complete(table, out));
  return out;
}

}  // namespace

bool is_declarable_name(std::string_view name) {
  constexpr std::array<std::string_view, 7> kReserved{
      "kernel", "true", "false", "min", "max", "ceil_div", "align_up"};
  const bool form = !name.empty() && name.size() <= kMaxNameBytes &&
                    name.front() >= 'a' && name.front() <= 'z' &&
                    std::ranges::all_of(name, [](char c) {
                      return is_name_char(c) && (c < 'A' || c > 'Z');
                    });
  return form && std::ranges::find(kReserved, name) == kReserved.end();
}

std::vector<Declared> in_order(const toml::table& table) {
  std::vector<Declared> out;
  for (const auto& [key, node] : table) out.push_back({std::string(key.str()), &node});
  std::ranges::sort(out, {},
                    [](const Declared& each) { return each.node->source().begin; });
  return out;
}

Result<std::vector<Declarations>> read_declarations(const toml::table& document,
                                                    std::string_view file) {
  const TomlTable top = KILN_TRY(TomlTable::open(
      document, file, "the top of the file",
      {"schema", "kernel", "source", "parameters", "constants", "derived",
       "constraints", "targets", "launch", "default_set", "quick"}));
  const std::int64_t schema = KILN_TRY(top.required_integer("schema"));
  if (schema != 1)
    return top.error("schema {} is not known; this is schema 1", schema);
  Declarations shared;
  shared.file = file;
  KILN_TRY(read_common(top, shared));
  const auto kernels = KILN_TRY(top.tables("kernel"));
  if (kernels.empty() || kernels.size() > kMaxKernels)
    return top.error("a file has 1 to {} [[kernel]]", kMaxKernels);
  std::vector<Declarations> out;
  out.reserve(kernels.size());
  for (const toml::table* kernel : kernels)
    out.push_back(KILN_TRY(read_kernel(shared, *kernel)));
  return out;
}

}  // namespace kiln::render
