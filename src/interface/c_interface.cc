#include "interface/c_interface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "interface/c_structs.h"
#include "util/try.h"

namespace kiln::interface {
namespace {

std::string enumeration(const Enumeration& of) {
  const std::string name = snake(of.name);
  std::vector<std::string> values;
  for (const std::string& value : of.values)
    values.push_back(fmt::format("  KILN_{}_{}", upper(name), upper(snake(value))));
  return fmt::format("typedef uint8_t kiln_{};\nenum {{\n{}\n}};\n\n", name,
                     fmt::join(values, ",\n"));
}

std::string structure(const CStruct& of) {
  std::string text = fmt::format("typedef struct {} {{\n", of.name);
  std::string init = "  { \\\n";
  if (of.has_size) {
    text += "  size_t struct_size;\n";
    init += fmt::format("    .struct_size = sizeof({}), \\\n", of.name);
  }
  for (std::size_t i = 0; i < of.fields.size(); ++i) {
    const CField& field = of.fields[i];
    text += fmt::format("  {}{} {};\n", begins_version(of, i) ? "KILN_ALIGNED " : "",
                        field.type, field.name);
    if (!field.initial.empty())
      init += fmt::format("    .{} = {}, \\\n", field.name, field.initial);
  }
  text += fmt::format("}} {};\n", of.name);
  if (of.has_size || !of.is_all_zero())
    text += fmt::format("#define {} \\\n{}  }}\n", of.init(), init);
  return text + "\n";
}

std::string prototypes(const Operation& of) {
  const std::string args = fmt::format("const kiln_{}_args* args", of.name);
  std::string text = fmt::format(
      "KILN_C_RESULT kiln_result kiln_{0}(\n"
      "    kiln_service* service, int device, kiln_stream stream,\n    {1});\n"
      "KILN_C_RESULT kiln_result kiln_{0}_prepare(\n"
      "    kiln_service* service, int device,\n    {1});\n",
      of.name, args);
  if (of.has_workspace)
    text += fmt::format(
        "KILN_C_RESULT kiln_result kiln_{}_workspace(\n"
        "    kiln_service* service, int device,\n    {}, uint64_t* bytes);\n",
        of.name, args);
  return text;
}

/// "to.q.out = from.q_out;"
std::string copied(const CStructs& all, const CField& field) {
  if (field.cpp_type == "std::optional<float>") {
    if (field.type == "bool")
      return "";
    return fmt::format("  if (from.has_{0})\n    to.{1} = from.{0};\n", field.name,
                       field.path);
  }
  if (all.find(field.type) != nullptr)
    return fmt::format("  to.{} = from_c(from.{});\n", field.path, field.name);
  if (!field.type.starts_with("kiln_") || field.type.ends_with('*'))
    return fmt::format("  to.{} = from.{};\n", field.path, field.name);
  return fmt::format("  to.{0} = static_cast<decltype(to.{0})>(from.{1});\n",
                     field.path, field.name);
}

/// That a program in C finds what the layout says and what C++ has as defaults.
std::string asserted(const CStructs& all, const CStruct& of) {
  const CLayout layout = all.layout(of);
  std::string text =
      fmt::format("static_assert(sizeof({}) == {});\n", of.name, layout.bytes);
  for (std::size_t i = 0; i < of.fields.size(); ++i)
    text += fmt::format("static_assert(offsetof({}, {}) == {});\n", of.name,
                        of.fields[i].name, layout.offsets[i]);
  if (!of.has_size)
    return text;
  text += fmt::format("template <>\ninline constexpr {0} kInitial<{0}> = {1};\n",
                      of.name, of.init());
  const auto assert_equal = [&](const std::string& path) {
    text += fmt::format(
        "static_assert(are_equal(from_c(kInitial<{0}>).{2}, ops::{1}().{2}));\n",
        of.name, of.cpp_name, path);
  };
  for (const CField& field : of.fields) {
    const CStruct* const nested = all.find(field.type);
    if (nested == nullptr)
      assert_equal(field.path);
    else
      for (const CField& inner : nested->fields)
        assert_equal(field.path + "." + inner.path);
  }
  return text;
}

void add_pointers(const OperationHeader& header, const Struct& of,
                  const std::string& path, std::string& to) {
  for (const Field& field : header.all_fields(of)) {
    if (field.is_pointer())
      to += fmt::format("  use({}{});\n", path, field.name);
    else if (const Struct* const part = header.find_struct(field.type))
      add_pointers(header, *part, path + field.name + ".", to);
  }
}

constexpr std::string_view kWrittenBy =
    "Written by kiln-interface from the headers of kiln/ops.";

}  // namespace

Result<std::string> c_header(std::span<const OperationHeader> headers) {
  std::string text = fmt::format(
      "/* The operations for C, a part of kiln/c.h. {}\n"
      " * A struct has the fields of the C++ struct, in its order and with its\n"
      " * defaults, and the C++ header says what each means. Of a field that is a "
      "struct\n"
      " * with pointers C has the fields; std::optional<float> x is has_x and x. */\n\n"
      "/* NOLINTBEGIN(readability-identifier-naming): as C names them */\n"
      "#ifndef KILN_C_H\n#include \"kiln/c.h\" /* which includes this file */\n"
      "#elif !defined(KILN_C_OPERATIONS_H)\n#define KILN_C_OPERATIONS_H\n\n",
      kWrittenBy);
  for (const OperationHeader& header : headers) {
    text += fmt::format("/* ---- {} ---- */\n\n", header.path);
    const CStructs all = KILN_TRY(c_structs(header));
    for (const Enumeration& each : header.enumerations)
      if (all.enumerations.contains(each.name))
        text += enumeration(each);
    for (const CStruct& each : all.structs) text += structure(each);
    for (const Operation& each : header.operations)
      if (each.arguments.size() == 1)
        text += prototypes(each);
    text += "\n";
  }
  return text + "#endif\n/* NOLINTEND(readability-identifier-naming) */\n";
}

Result<std::string> c_glue(std::span<const OperationHeader> headers) {
  std::string text = fmt::format(
      "// {}\n\n#pragma once\n\n#include <cstddef>\n\n#include \"kiln/c.h\"\n"
      "#include \"kiln/kiln.h\"\n\nnamespace kiln::c {{\n\n"
      "/// What the struct's _INIT macro gives.\ntemplate <typename InC>\n"
      "inline constexpr InC kInitial{{}};\n\n"
      "template <typename Value>\n"
      "constexpr bool are_equal(const Value& a, const Value& b) {{\n"
      "  return a == b || (a != a && b != b);  // NaN\n}}\n\n",
      kWrittenBy);
  for (const OperationHeader& header : headers) {
    const CStructs all = KILN_TRY(c_structs(header));
    for (const CStruct& each : all.structs) {
      text += fmt::format(
          "[[nodiscard]] constexpr ops::{0} from_c(const {1}& from) {{\n"
          "  ops::{0} to{{}};\n",
          each.cpp_name, each.name);
      for (const CField& field : each.fields) text += copied(all, field);
      text += "  return to;\n}\n" + asserted(all, each) + "\n";
    }
  }
  return text + "}  // namespace kiln::c\n";
}

Result<std::string> operation_table(std::span<const OperationHeader> headers) {
  std::string operations;
  std::string workspaces;
  std::string pointers;
  for (const OperationHeader& header : headers) {
    for (const Operation& each : header.operations) {
      if (each.arguments.size() != 1)
        continue;
      const std::string& name = each.arguments.front();
      const std::string row = fmt::format(" \\\n  use({}, {})", each.name, name);
      operations += row;
      if (each.has_workspace)
        workspaces += row;
      pointers += fmt::format(
          "template <typename Args, typename Use>\n"
          "  requires std::is_same_v<std::remove_const_t<Args>, {}>\n"
          "void for_each_pointer(Args& args, const Use& use) {{\n",
          name);
      add_pointers(header, *header.find_struct(name), "args.", pointers);
      pointers += "}\n\n";
    }
  }
  return fmt::format(
      "// {}\n\n#pragma once\n\n#include <type_traits>\n\n#include \"kiln/kiln.h\"\n\n"
      "/// use(softmax_forward, SoftmaxForward) for each operation but attention.\n"
      "#define KILN_EACH_OPERATION(use){}\n\n"
      "/// Those that may need scratch memory.\n"
      "#define KILN_EACH_WORKSPACE(use){}\n\n"
      "namespace kiln::ops {{\n\n"
      "// Call `use` with each pointer of an operation's arguments.\n\n{}"
      "}}  // namespace kiln::ops\n",
      kWrittenBy, operations, workspaces, pointers);
}

std::string enumeration_words(std::span<const OperationHeader> headers) {
  std::string declared;
  std::string words;
  for (const OperationHeader& header : headers) {
    for (const Enumeration& each : header.enumerations) {
      declared += fmt::format("enum class {} : std::uint8_t;\n", each.name);
      words += fmt::format(
          "template <>\ninline constexpr std::array<std::string_view, {}> "
          "kWords<ops::{}>{{",
          each.values.size(), each.name);
      for (const std::string& value : each.values)
        words += fmt::format("\n    \"{}\",", snake(value));
      words += "};\n\n";
    }
  }
  return fmt::format(
      "// {}\n\n#pragma once\n\n#include <cstdint>\n\n#include \"util/words.h\"\n\n"
      "namespace kiln::ops {{\n{}}}  // namespace kiln::ops\n\n"
      "namespace kiln {{\n\n{}}}  // namespace kiln\n",
      kWrittenBy, declared, words);
}

}  // namespace kiln::interface
