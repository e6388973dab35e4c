#include "interface/python_interface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "interface/c_structs.h"
#include "util/try.h"

namespace kiln::interface {
namespace {

bool is_tensor(const CField& field) {
  return field.type.ends_with('*');
}

/// The type that a value of Python arrives as.
std::string arriving(const CField& field) {
  if (is_tensor(field))
    return "Optional<TensorView>";
  if (field.type == "float" || field.type == "double")
    return "Optional<double>";
  return field.type == "bool" ? "Optional<bool>" : "Optional<std::int64_t>";
}

std::string set_option(const CField& field) {
  std::string set =
      fmt::format("args.{0} = static_cast<{1}>(*{0});", field.name, field.type);
  if (field.cpp_type.starts_with("std::optional"))
    set = fmt::format("args.has_{} = true, {}", field.name, set);
  return fmt::format("    if ({})\n      {}\n", field.name, set);
}

/// The sizes in an extent as members of `args`.
std::string in_args(const std::string& extent) {
  static const std::regex size(R"([a-z_]\w*)");
  return std::regex_replace(extent, size, "args.$&");
}

/// The type of the elements, as python/ffi/call.h has it.
std::string type_of(const std::string& word) {
  static const std::map<std::string_view, std::string> known{
      {"f32", "kFloat32"}, {"i32", "kInt32"}, {"u8", "kByte"}};
  const auto found = known.find(word);
  return found != known.end() ? found->second
                              : fmt::format("type_of({})", in_args(word));
}

/// Sets the tensors of KILN_TENSOR that are given, inputs first, and their flags. The
/// others python/ffi has set by then.
std::string set_tensors(const CStruct& of) {
  std::string set;
  std::set<std::string> flags;
  std::vector<std::string> shapes;
  const auto add = [&](const CField& field) {
    if (!field.flag.empty() && flags.insert(field.flag).second)
      set += fmt::format("    args.{} = {}.has_value();\n", field.flag, field.name);
    std::vector<std::string> extents;
    for (const std::string& extent : std::span(field.tensor).subspan(1))
      extents.push_back(in_args(extent));
    const std::string shape = fmt::format("{}", fmt::join(field.tensor, ", "));
    const auto known = std::ranges::find(shapes, shape);
    const auto index = known - shapes.begin();
    if (known == shapes.end())
      shapes.push_back(shape);
    set += fmt::format(
        "    call.set(args.{0}, \"{0}\", {0}, {1}, {{{2}}}, shapes[{3}]);\n",
        field.name, type_of(field.tensor.front()), fmt::join(extents, ", "), index);
  };
  for (const bool is_input : {true, false})
    for (const CField& field : of.fields)
      if (!field.tensor.empty() && field.type.starts_with("const ") == is_input)
        add(field);
  for (const CField& field : of.fields)
    if (is_tensor(field) && field.tensor.empty() && field.name != "workspace")
      set += fmt::format("    call.expect_set(args.{0}, \"{0}\", {0});\n", field.name);
  return fmt::format(
      "    [[maybe_unused]] auto& args = call.args;\n"
      "    [[maybe_unused]] std::array<KnownShape, {}> shapes{{}};\n{}",
      shapes.size(), set);
}

std::string parameters(const CStruct& of) {
  std::vector<std::string> names;
  std::vector<std::string> read;
  std::string members;
  std::string set;
  for (const CField& field : of.fields) {
    if (!is_tensor(field) && !field.is_option)
      continue;
    const std::string type = arriving(field);
    names.push_back(fmt::format("\"{}\"", field.name));
    const bool is_output = is_tensor(field) && !field.type.starts_with("const ");
    read.push_back(fmt::format("{0}(given.{1}(\"{0}\"))", field.name,
                               is_output ? "take_output" : "take<" + type + ">"));
    members += fmt::format("  {} {};\n", type, field.name);
    if (field.is_option)
      set += set_option(field);
  }
  return fmt::format(
      "template <>\n"
      "struct Parameters<{0}> {{\n"
      "{1}\n"
      "  explicit Parameters(Given& given)\n      : {2} {{}}\n"
      "  void set_options({0}& args) const {{\n{3}  }}\n"
      "  template <typename Call>\n"
      "  void set_tensors(Call& call) const {{\n{5}  }}\n"
      "  static constexpr std::array<const char*, {6}> kNames{{{4}}};\n"
      "}};\n\n",
      of.name, members, fmt::join(read, ",\n        "), set, fmt::join(names, ", "),
      set_tensors(of), names.size());
}

std::string functions(const Operation& operation, const CStruct& of) {
  return fmt::format(
      "template <>\ninline constexpr Operation<{0}> kOperation<{0}>{{\n"
      "    \"{1}\", {2}, kiln_{1}, kiln_{1}_prepare{3}}};\n\n",
      of.name, operation.name, of.init(),
      operation.has_workspace ? fmt::format(", kiln_{}_workspace", operation.name)
                              : "");
}

/// `enumerations`: "attention_bias" and "none post_scale alibi boolean".
std::string words(std::span<const OperationHeader> headers) {
  std::vector<std::string> rows;
  for (const OperationHeader& header : headers)
    for (const Enumeration& each : header.enumerations) {
      std::vector<std::string> values;
      for (const std::string& value : each.values) values.push_back(snake(value));
      rows.push_back(
          fmt::format("{{\"{}\", \"{}\"}}", snake(each.name), fmt::join(values, " ")));
    }
  return fmt::format(
      "/// The words of each enumeration, by their values.\n"
      "inline constexpr std::array<std::pair<const char*, const char*>, {}> "
      "kEnumerations{{{{\n    {}}}}};\n\n",
      rows.size(), fmt::join(rows, ",\n    "));
}

}  // namespace

Result<std::string> python_parameters(std::span<const OperationHeader> headers) {
  std::string text =
      "// Written by kiln-interface from the headers of kiln/ops.\n\n#pragma once\n\n"
      "#include \"parameters.h\"\n\nnamespace kiln::python {\n\n";
  for (const OperationHeader& header : headers) {
    const CStructs all = KILN_TRY(c_structs(header));
    std::set<std::string> written;
    for (const Operation& each : header.operations) {
      for (const std::string& name : each.arguments) {
        const CStruct& of = *all.find(c_name(each, name));
        if (written.insert(of.name).second)
          text += parameters(of);
        if (each.arguments.size() == 1)
          text += functions(each, of);
      }
    }
  }
  return text + words(headers) + "}  // namespace kiln::python\n";
}

}  // namespace kiln::interface
