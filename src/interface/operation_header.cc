#include "interface/operation_header.h"

#include <algorithm>
#include <cctype>
#include <regex>

#include "util/text.h"
#include "util/try.h"

namespace kiln::interface {
namespace {

/// Without comments and lines of the preprocessor, and with one blank for any run of
/// blanks and newlines.
std::string squeezed(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const bool begins_line = i == 0 || text[i - 1] == '\n';
    if (text.substr(i, 2) == "//" || (begins_line && text[i] == '#')) {
      i = std::min(text.find('\n', i), text.size());
    } else if (std::isspace(static_cast<unsigned char>(text[i])) != 0) {
      if (!out.empty() && out.back() != ' ')
        out += ' ';
      ++i;
    } else {
      out += text[i++];
    }
  }
  return out;
}

/// The text up to the brace that ends what `text` begins inside of, which is taken off.
std::string take_block(std::string_view& text) {
  int depth = 1;
  std::size_t end = 0;
  for (; end < text.size() && depth > 0; ++end)
    depth += text[end] == '{' ? 1 : text[end] == '}' ? -1 : 0;
  std::string block(text.substr(0, end - 1));
  text.remove_prefix(end);
  return block;
}

std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  for (const std::string_view part : parts_of(text, separator)) {
    if (const auto words = trimmed(part); !words.empty())
      parts.emplace_back(words);
  }
  return parts;
}

Result<Struct> read_struct(std::string name, std::string base,
                           const std::string& block) {
  static const std::regex field(R"((?:KILN_SINCE\((\d+), (\d+)\) )?)"
                                R"((KILN_OPTION )?)"
                                R"((?:KILN_TENSOR(_IF)?\(([^()]*)\) )?)"
                                R"(((?:const )?[\w:<>]+\*?) (\w+)(?: = (.+)|\{\})?)");
  Struct made{std::move(name), std::move(base), {}};
  for (const std::string& statement : split(block, ";")) {
    if (statement.starts_with("friend "))
      continue;
    std::smatch found;
    if (!std::regex_match(statement, found, field))
      return refuse("struct {}: '{}' is no field of the form TYPE NAME = VALUE",
                    made.name, statement);
    Version since;
    if (found[1].matched)
      since = {std::stoi(found.str(1)), std::stoi(found.str(2))};
    Field read{found.str(6), found.str(7), found.str(8), since, found[3].matched};
    read.tensor = split(found.str(5), ",");
    if (found[4].matched && !read.tensor.empty()) {
      read.flag = read.tensor.front();
      read.tensor.erase(read.tensor.begin());
    }
    if (found[5].matched && (!read.is_pointer() || read.tensor.empty()))
      return refuse("struct {}: KILN_TENSOR needs a pointer and its type: '{}'",
                    made.name, statement);
    made.fields.push_back(std::move(read));
  }
  return made;
}

Operation read_operation(const std::string& name, const std::string& parameters) {
  static const std::regex argument(R"(const (\w+)& \w+(?: = \{\})?)");
  Operation made{name, {}, false};
  for (const std::string& parameter : split(parameters, ",")) {
    std::smatch found;
    if (std::regex_match(parameter, found, argument) && found.str(1) != "Device")
      made.arguments.push_back(found.str(1));
  }
  return made;
}

template <typename Named>
const Named* find(const std::vector<Named>& all, std::string_view name) {
  const auto found = std::ranges::find(all, name, &Named::name);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

const Struct* OperationHeader::find_struct(std::string_view name) const {
  return find(structs, name);
}

const Enumeration* OperationHeader::find_enumeration(std::string_view name) const {
  return find(enumerations, name);
}

std::vector<Field> OperationHeader::all_fields(const Struct& of) const {
  std::vector<Field> all;
  if (const Struct* const base = find_struct(of.base))
    all = all_fields(*base);
  all.insert(all.end(), of.fields.begin(), of.fields.end());
  return all;
}

Result<OperationHeader> read_operation_header(std::string path, std::string_view text) {
  static const std::regex opening(
      R"(enum class (\w+) : std::uint8_t \{)"
      R"(|struct (\w+)(?: : (\w+))? \{)"
      R"(|Result<void> (\w+)\( ?Service& service, const Device& device, )"
      R"(CUstream_st\* stream, ([^()]*)\);)"
      R"(|Result<std::uint64_t> (\w+)_workspace_bytes\()");
  static const std::regex any_operation(
      R"(Result<void> (\w+)\([^()]*CUstream_st\*[^()]*\);)");
  OperationHeader header{std::move(path), {}, {}, {}};
  const std::string whole = squeezed(text);
  std::string_view rest = whole;
  std::match_results<std::string_view::const_iterator> found;
  while (std::regex_search(rest.begin(), rest.end(), found, opening)) {
    rest.remove_prefix(static_cast<std::size_t>(found.position() + found.length()));
    if (found[1].matched) {
      header.enumerations.push_back({found.str(1), split(take_block(rest), ",")});
    } else if (found[2].matched) {
      std::string name = found.str(2);
      std::string base = found.str(3);
      header.structs.push_back(
          KILN_TRY(read_struct(std::move(name), std::move(base), take_block(rest))));
    } else if (found[4].matched) {
      header.operations.push_back(read_operation(found.str(4), found.str(5)));
    } else {
      const std::string name = found.str(6);
      const auto of = std::ranges::find(header.operations, name, &Operation::name);
      if (of == header.operations.end())
        return refuse("{}_workspace_bytes() is of no operation before it", name);
      of->has_workspace = true;
    }
  }
  for (std::sregex_iterator at(whole.begin(), whole.end(), any_operation), end;
       at != end; ++at)
    if (std::ranges::find(header.operations, at->str(1), &Operation::name) ==
        header.operations.end())
      return refuse(
          "{}(): no operation has such parameters; it takes 'Service& service, const "
          "Device& device, CUstream_st* stream', then structs",
          at->str(1));
  return header;
}

}  // namespace kiln::interface
