#include "interface/c_structs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

#include "util/try.h"

namespace kiln::interface {
namespace {

tl::unexpected<Error> refused(const Struct& of, const Field& field) {
  return fail(ErrorCode::kInvalidArgument, "struct {}: C has no form of '{} {} = {}'",
              of.name, field.type, field.name, field.initial);
}

/// Makes the C structs of one header.
class Translator {
 public:
  explicit Translator(const OperationHeader& header) : header_(header) {}

  /// Those that operations take, after the structs that they contain.
  Result<CStructs> structs() {
    for (const Operation& operation : header_.operations)
      for (const std::string& argument : operation.arguments)
        KILN_TRY(add_argument(operation, argument));
    return made_;
  }

 private:
  static const std::map<std::string, std::string, std::less<>>& simple_types() {
    static const std::map<std::string, std::string, std::less<>> types{
        {"DType", "kiln_dtype"},
        {"bool", "bool"},
        {"float", "float"},
        {"double", "double"},
        {"std::int64_t", "int64_t"},
        {"std::uint64_t", "uint64_t"},
        {"std::int32_t", "int32_t"},
        {"std::uint8_t", "uint8_t"},
        {"void", "void"}};
    return types;
  }

  Result<void> add_argument(const Operation& operation, const std::string& name) {
    const Struct* of = header_.find_struct(name);
    if (of == nullptr)
      return fail(ErrorCode::kInvalidArgument, "{}: there is no struct {}",
                  operation.name, name);
    CStruct made{.name = c_name(operation, name),
                 .cpp_name = name,
                 .has_size = true,
                 .fields = {}};
    if (!is_new(made.name))
      return {};
    KILN_TRY(add_fields(*of, "", "", {}, made));
    std::ranges::stable_sort(made.fields, {}, &CField::since);  // it grows at its end
    made_.structs.push_back(std::move(made));
    return {};
  }

  bool is_new(const std::string& name) { return names_.insert(name).second; }

  /// `of` is `to`, or a part of it that `since` has first.
  Result<void> add_fields(const Struct& of, const std::string& prefix,
                          const std::string& path, Version since, CStruct& to) {
    for (const Field& field : header_.all_fields(of)) {
      const std::string name = prefix + field.name;
      const std::string at = path + field.name;
      const Version first = std::max(since, field.since);
      if (const Struct* const part = header_.find_struct(field.type)) {
        if (has_pointer(*part))
          KILN_TRY(add_fields(*part, name + "_", at + ".", first, to));
        else
          to.fields.push_back({KILN_TRY(nested(*part)), name, nested_init(*part), at,
                               field.type, first});
        continue;
      }
      if (field.type == "std::optional<float>") {
        to.fields.push_back({"bool", "has_" + name, "", at, field.type, first});
        to.fields.push_back(
            {"float", name, "", at, field.type, first, field.is_option});
        continue;
      }
      const auto type = type_of(field.type);
      const auto initial = initial_of(field);
      if (!type || !initial)
        return refused(of, field);
      to.fields.push_back({*type, name, *initial, at, field.type, first,
                           field.is_option, field.tensor, field.flag});
    }
    return {};
  }

  static bool has_pointer(const Struct& of) {
    return std::ranges::any_of(of.fields, &Field::is_pointer);
  }

  /// A struct of numbers is a struct in C as well.
  Result<std::string> nested(const Struct& part) {
    CStruct made{.name = "kiln_" + snake(part.name),
                 .cpp_name = part.name,
                 .has_size = false,
                 .fields = {}};
    std::string name = made.name;
    if (is_new(name)) {
      KILN_TRY(add_fields(part, "", "", {}, made));
      for (const Field& field : part.fields)
        if (field.since != Version())
          return fail(ErrorCode::kInvalidArgument,
                      "struct {}: {} cannot be added: in C the struct has no size by "
                      "which it could grow",
                      part.name, field.name);
      made_.structs.push_back(std::move(made));
    }
    return name;
  }

  [[nodiscard]] std::string nested_init(const Struct& part) const {
    const CStruct* const made = made_.find("kiln_" + snake(part.name));
    return made == nullptr || made->is_all_zero() ? "" : made->init();
  }

  std::optional<std::string> type_of(std::string type) {
    std::string before;
    std::string behind;
    if (type.starts_with("const ")) {
      before = "const ";
      type.erase(0, before.size());
    }
    if (type.ends_with('*')) {
      behind = "*";
      type.pop_back();
    }
    if (const auto found = simple_types().find(type); found != simple_types().end())
      return before + found->second + behind;
    if (header_.find_enumeration(type) == nullptr)
      return std::nullopt;
    made_.enumerations.insert(type);
    return before + "kiln_" + snake(type) + behind;
  }

  /// Empty: 0.
  [[nodiscard]] std::optional<std::string> initial_of(const Field& field) const {
    static const std::set<std::string_view> zero{"", "nullptr", "0", "false",
                                                 "DType::kUnset"};
    const std::string& text = field.initial;
    if (zero.contains(text))
      return "";
    if (text == "kUnsetSize")
      return "KILN_UNSET";
    if (text.ends_with("::quiet_NaN()"))
      return "NAN";
    if (text == "true" || text.find_first_not_of("-.0123456789eF") == text.npos)
      return text;
    const std::size_t colons = text.find("::");
    const Enumeration* const of = header_.find_enumeration(text.substr(0, colons));
    if (of == nullptr || colons == text.npos)
      return std::nullopt;
    return text.substr(colons + 2) == of->values.front()
               ? ""
               : fmt::format("KILN_{}_{}", upper(snake(of->name)),
                             upper(snake(text.substr(colons + 2))));
  }

  const OperationHeader& header_;
  CStructs made_;
  std::set<std::string> names_;
};

/// Bytes of a value, which are its alignment, too.
std::size_t bytes_of(const std::string& type) {
  static const std::map<std::string_view, std::size_t> bytes{
      {"size_t", 8}, {"int64_t", 8}, {"uint64_t", 8},
      {"double", 8}, {"int32_t", 4}, {"float", 4}};
  if (type.ends_with('*'))
    return 8;
  const auto found = bytes.find(type);
  return found == bytes.end() ? 1 : found->second;
}

}  // namespace

std::string snake(std::string_view name) {
  if (name.size() > 1 && name[0] == 'k' && std::isupper(name[1]) != 0)
    name.remove_prefix(1);
  std::string out;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (std::isupper(c) != 0 && i > 0 && std::islower(name[i - 1]) != 0)
      out += '_';
    out += static_cast<char>(std::tolower(c));
  }
  return out;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(c));
  return text;
}

std::string c_name(const Operation& operation, std::string_view name) {
  return operation.arguments.size() == 1 ? fmt::format("kiln_{}_args", operation.name)
                                         : "kiln_" + snake(name);
}

std::string CStruct::init() const {
  return upper(name) + "_INIT";
}

bool CStruct::is_all_zero() const {
  return std::ranges::all_of(fields,
                             [](const CField& field) { return field.initial.empty(); });
}

const CStruct* CStructs::find(std::string_view name) const {
  const auto found = std::ranges::find(structs, name, &CStruct::name);
  return found == structs.end() ? nullptr : &*found;
}

bool begins_version(const CStruct& of, std::size_t field) {
  return field > 0 && of.fields[field].since != of.fields[field - 1].since;
}

CLayout CStructs::layout(const CStruct& of) const {
  CLayout made;
  std::size_t end = of.has_size ? sizeof(std::size_t) : 0;
  std::size_t alignment = end == 0 ? 1 : end;
  for (const CField& field : of.fields) {
    const CStruct* const nested = find(field.type);
    const CLayout inner = nested != nullptr ? layout(*nested) : CLayout();
    const std::size_t bytes = nested != nullptr ? inner.bytes : bytes_of(field.type);
    const std::size_t natural = nested != nullptr ? inner.alignment : bytes;
    const std::size_t aligned =
        begins_version(of, made.offsets.size()) ? sizeof(std::size_t) : natural;
    end = (end + aligned - 1) / aligned * aligned;
    made.offsets.push_back(end);
    end += bytes;
    alignment = std::max(alignment, aligned);
  }
  made.alignment = alignment;
  made.bytes = (end + alignment - 1) / alignment * alignment;
  return made;
}

Result<CStructs> c_structs(const OperationHeader& header) {
  return Translator(header).structs();
}

}  // namespace kiln::interface
