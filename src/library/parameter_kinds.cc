#include "library/parameter_kinds.h"

#include <algorithm>
#include <array>

#include "util/demangle.h"
#include "util/text.h"

namespace kiln {
namespace {

// As the demangler of the C++ ABI prints them.
constexpr std::array<std::string_view, 12> kIntegers{
    "bool",  "char",      "signed char",    "unsigned char",
    "short", "int",       "unsigned short", "unsigned int",
    "long",  "long long", "unsigned long",  "unsigned long long"};
constexpr std::array<std::string_view, 2> kFloats{"float", "double"};

ArgumentKind kind_of_type(std::string_view type) {
  if (std::ranges::find(kFloats, type) != kFloats.end())
    return ArgumentKind::kFloat;
  return type.ends_with('*') || std::ranges::find(kIntegers, type) != kIntegers.end()
             ? ArgumentKind::kInteger
             : ArgumentKind::kAny;
}

/// ".u32", ".f64". A pointer is ".u64".
ArgumentKind kind_of_param(std::string_view type) {
  if (type == ".f32" || type == ".f64")
    return ArgumentKind::kFloat;
  constexpr std::array<std::string_view, 8> kWords{".u8",  ".s8",  ".u16", ".s16",
                                                   ".u32", ".s32", ".u64", ".s64"};
  return std::ranges::find(kWords, type) != kWords.end() ? ArgumentKind::kInteger
                                                         : ArgumentKind::kAny;
}

}  // namespace

std::vector<ArgumentKind> kinds_in_signature(std::string_view signature) {
  std::vector<ArgumentKind> kinds;
  // The parameters are in the last parentheses outside of all others.
  if (!signature.ends_with(')'))
    return kinds;
  std::size_t begin = signature.size() - 1;
  for (int depth = 0; begin != std::string_view::npos; --begin) {
    depth += signature[begin] == ')' ? 1 : signature[begin] == '(' ? -1 : 0;
    if (depth == 0)
      break;
    if (begin == 0)
      return kinds;
  }
  const std::string_view list =
      signature.substr(begin + 1, signature.size() - begin - 2);
  std::size_t first = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    depth += c == '(' || c == '<' || c == '{' || c == '[' ? 1 : 0;
    depth -= c == ')' || c == '>' || c == '}' || c == ']' ? 1 : 0;
    if (c != ',' || (depth != 0 && i < list.size()))
      continue;
    if (const auto type = trimmed(list.substr(first, i - first), " \t\n");
        !type.empty())
      kinds.push_back(kind_of_type(type));
    first = i + 1;
  }
  return kinds;
}

std::vector<ArgumentKind> kinds_in_ptx(std::string_view ptx, std::string_view entry) {
  std::vector<ArgumentKind> kinds;
  const std::string head = ".entry " + std::string(entry) + "(";
  const std::size_t at = ptx.find(head);
  if (at == std::string_view::npos)
    return kinds;
  std::string_view list = ptx.substr(at + head.size());
  list = list.substr(0, list.find(')'));
  constexpr std::string_view kParam = ".param";
  for (std::size_t next = list.find(kParam); next != std::string_view::npos;
       next = list.find(kParam)) {
    list = trimmed(list.substr(next + kParam.size()), " \t\n");
    kinds.push_back(kind_of_param(list.substr(0, list.find_first_of(" \t\n"))));
  }
  return kinds;
}

std::vector<ArgumentKind> parameter_kinds(const std::string& lowered_name,
                                          std::size_t count,
                                          const std::function<std::string()>& ptx) {
  auto kinds = kinds_in_signature(demangled(lowered_name));
  if (kinds.size() != count)
    kinds.assign(count, ArgumentKind::kAny);
  if (std::ranges::find(kinds, ArgumentKind::kAny) == kinds.end())
    return kinds;
  // A name says of an enumeration what it is called, and not that it is a number.
  const auto said = kinds_in_ptx(ptx(), lowered_name);
  for (std::size_t i = 0; i < count && said.size() == count; ++i)
    kinds[i] = kinds[i] == ArgumentKind::kAny ? said[i] : kinds[i];
  return kinds;
}

}  // namespace kiln
