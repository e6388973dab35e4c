#include "interface/python_interface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

std::string parameters(const CStruct& of) {
  std::vector<std::string> names;
  std::vector<std::string> read;
  std::string members;
  std::string set;
  std::string point;
  for (const CField& field : of.fields) {
    if (!is_tensor(field) && !field.is_option)
      continue;
    const std::string type = arriving(field);
    names.push_back(fmt::format("\"{}\"", field.name));
    read.push_back(fmt::format("{0}(given.take<{1}>(\"{0}\"))", field.name, type));
    members += fmt::format("  {} {};\n", type, field.name);
    if (field.is_option)
      set += set_option(field);
    else if (field.name != "workspace")  // which comes last: Call::run()
      point += fmt::format("    call.set(call.args.{0}, \"{0}\", {0});\n", field.name);
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
      point, names.size());
}

std::string functions(const Operation& operation, const CStruct& of) {
  return fmt::format(
      "template <>\ninline constexpr Operation<{0}> kOperation<{0}>{{\n"
      "    \"{1}\", {2}, kiln_{1}, kiln_{1}_prepare{3}}};\n\n",
      of.name, operation.name, of.init(),
      operation.has_workspace ? fmt::format(", kiln_{}_workspace", operation.name)
                              : "");
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
  return text + "}  // namespace kiln::python\n";
}

}  // namespace kiln::interface
