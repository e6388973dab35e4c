// PTX text, as far as a driver has to know it before it compiles: version, target,
// entry points.

#include <algorithm>
#include <cctype>
#include <charconv>

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

}  // namespace

tl::expected<Image, Refusal> read_ptx(std::string_view text) {
  const auto bad = [](std::string_view why) {
    return tl::unexpected(
        Refusal{CUDA_ERROR_INVALID_PTX, "bad PTX: " + std::string(why)});
  };
  const std::string code = without_comments(text);
  Image image;
  image.is_ptx = true;
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
  for (auto word = next_word(code, at); !word.empty(); word = next_word(code, at)) {
    if (word != ".entry")
      continue;
    const std::string_view name = next_word(code, at);
    if (name.empty())
      return bad("no name after .entry");
    image.entry_points.push_back({.name = std::string(name)});
  }
  return image;
}

}  // namespace kiln::simulated
