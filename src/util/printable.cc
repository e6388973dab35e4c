#include "util/printable.h"

#include <algorithm>
#include <bit>

namespace kiln {
namespace {

/// The bytes of the character at the beginning of `text`; 0: they are no UTF-8.
std::size_t character_size(std::string_view text) {
  constexpr std::size_t kLongest = 4;
  const auto lead = static_cast<unsigned char>(text.front());
  const auto ones = static_cast<std::size_t>(std::countl_one(lead));
  if (ones == 0)
    return 1;
  const bool is_whole = ones > 1 && ones <= kLongest && ones <= text.size();
  return is_whole && std::ranges::all_of(text.substr(1, ones - 1),
                                         [](unsigned char c) { return c >> 6U == 2; })
             ? ones
             : 0;
}

/// Of ASCII, or of the 32 behind it.
bool is_control(std::string_view character) {
  constexpr unsigned char kFirstBehind = 0xA0;
  const auto first = static_cast<unsigned char>(character.front());
  return character.size() == 1
             ? first < ' ' || first == 0x7F
             : first == 0xC2 && static_cast<unsigned char>(character[1]) < kFirstBehind;
}

}  // namespace

std::string printable(std::string_view text, std::size_t most_bytes) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(1, size));
    if (shown.size() + character.size() > most_bytes)
      return shown + "…";
    if (character == "\t")
      shown += ' ';
    else
      shown += size == 0 || is_control(character) ? "?" : character;
    text.remove_prefix(character.size());
  }
  return shown;
}

}  // namespace kiln
