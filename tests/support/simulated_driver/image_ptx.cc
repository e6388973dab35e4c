// PTX text, as far as a driver has to know it before it compiles: version, target,
// entry points.

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <tuple>
#include <utility>

#include "tests/support/simulated_driver/image.h"

namespace kiln::simulated {
namespace {

std::string without_comments(std::string_view text) {
  std::string code;
  while (!text.empty()) {
    const std::size_t line = text.find("//");
    const std::size_t block = text.find("/*");
    const std::size_t start = std::min(line, block);
    code.append(text.substr(0, start));
    if (start == std::string_view::npos)
      break;
    const std::string_view ending = line < block ? "\n" : "*/";
    const std::size_t end = text.find(ending, start + 2);
    code.push_back(line < block ? '\n' : ' ');
    text.remove_prefix(end == std::string_view::npos ? text.size()
                                                     : end + ending.size());
  }
  return code;
}

/// The next word from `at` on, which moves behind it: blanks, commas and brackets
/// separate words. "" at the end.
std::string_view next_word(std::string_view code, std::size_t& at) {
  constexpr std::string_view kSeparators = " \t\r\n\f,;(){}";
  const std::size_t start =
      std::min(code.find_first_not_of(kSeparators, at), code.size());
  at = std::min(code.find_first_of(kSeparators, start), code.size());
  return code.substr(start, at - start);
}

// "9.0" is 90; 0 for what is no version.
int parse_version(std::string_view word) {
  unsigned char major = 0;
  unsigned char minor = 0;
  const char* const end = word.data() + word.size();
  const auto first = std::from_chars(word.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.')
    return 0;
  const auto second = std::from_chars(first.ptr + 1, end, minor);
  if (second.ec != std::errc() || second.ptr != end || minor > 9)
    return 0;
  return major * 10 + minor;
}

// ".u64" is 8; 0 for what is no type.
std::size_t size_of_type(std::string_view word) {
  const std::size_t digits = word.find_first_of("0123456789");
  std::size_t bits = 0;
  if (!word.starts_with('.') || digits != 2)
    return 0;
  const std::string_view number = word.substr(digits);
  std::ignore = std::from_chars(number.data(), number.data() + number.size(), bits);
  return bits / 8;
}

// "k_param_1[24]" is 24, "k_param_0" 1.
std::size_t elements_of(std::string_view word) {
  std::size_t count = 1;
  const std::size_t bracket = word.find('[');
  if (bracket == std::string_view::npos)
    return count;
  const std::string_view number = word.substr(bracket + 1);
  std::ignore = std::from_chars(number.data(), number.data() + number.size(), count);
  return count;
}

// What stands between the brackets after an entry's name, if there are any:
// ".param .u64 k_param_0, .param .align 8 .b8 k_param_1[24]".
std::vector<Parameter> read_parameters(std::string_view code, std::size_t at) {
  std::vector<Parameter> parameters;
  const std::size_t open = code.find_first_not_of(" \t\r\n\f", at);
  if (open == std::string_view::npos || code[open] != '(')
    return parameters;
  const std::string_view list = code.substr(open, code.find(')', open) - open);
  std::size_t inside = 0;
  std::size_t type_size = 0;
  std::size_t alignment = 1;  // of an array; a pointer's own follows its type
  std::size_t end = 0;
  for (auto word = next_word(list, inside); !word.empty();
       word = next_word(list, inside)) {
    if (word == ".align" && type_size == 0)
      std::ignore = std::from_chars(next_word(list, inside).data(),
                                    list.data() + list.size(), alignment);
    if (const std::size_t size = size_of_type(word); size != 0)
      type_size = size;
    const bool is_name = !word.starts_with('.') &&
                         std::isdigit(static_cast<unsigned char>(word.front())) == 0;
    if (!is_name || type_size == 0)
      continue;
    const std::size_t unit = std::max({type_size, alignment, std::size_t{1}});
    const std::size_t offset = (end + unit - 1) / unit * unit;
    parameters.push_back({.offset = offset, .size = type_size * elements_of(word)});
    end = offset + parameters.back().size;
    type_size = 0;
    alignment = 1;
  }
  return parameters;
}

}  // namespace

tl::expected<Image, Refusal> read_ptx(std::string_view text) {
  const auto bad = [](std::string_view why) {
    return tl::unexpected(
        Refusal{CUDA_ERROR_INVALID_PTX, "bad PTX: " + std::string(why)});
  };
  const std::string code = without_comments(text);
  Image image;
  image.is_ptx = true;
  image.ptx = text;
  std::size_t at = 0;
  if (next_word(code, at) != ".version")
    return bad("it does not begin with .version");
  image.ptx_version = parse_version(next_word(code, at));
  if (image.ptx_version == 0)
    return bad("no version after .version");
  if (next_word(code, at) != ".target")
    return bad(".target does not follow .version");
  const auto arch = parse_arch(next_word(code, at));
  if (!arch)
    return bad("no architecture after .target");
  image.arch = *arch;
  image.toolkit = toolkit_of_ptx(image.ptx_version);
  std::string_view before;
  for (auto word = next_word(code, at); !word.empty();
       before = std::exchange(word, next_word(code, at))) {
    if (word != ".entry")
      continue;
    const std::string_view name = next_word(code, at);
    if (name.empty())
      return bad("no name after .entry");
    image.entry_points.push_back(
        {.name = std::string(name),
         .parameters = read_parameters(code, at),
         .is_local = before != ".visible" && before != ".weak"});
  }
  return image;
}

}  // namespace kiln::simulated
