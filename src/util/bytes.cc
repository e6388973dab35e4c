#include "util/bytes.h"

namespace kiln {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

int digit_value(char digit) {
  if (digit >= '0' && digit <= '9')
    return digit - '0';
  if (digit >= 'a' && digit <= 'f')
    return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F')
    return digit - 'A' + 10;
  return -1;
}

}  // namespace

std::string to_hex(ByteView bytes) {
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    const auto value = std::to_integer<unsigned>(byte);
    hex += kDigits[value >> 4U];
    hex += kDigits[value & 15U];
  }
  return hex;
}

std::optional<Bytes> from_hex(std::string_view hex) {
  if (hex.size() % 2 != 0)
    return std::nullopt;
  Bytes bytes;
  bytes.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit_value(hex[i]);
    const int low = digit_value(hex[i + 1]);
    if (high < 0 || low < 0)
      return std::nullopt;
    bytes.push_back(static_cast<std::byte>(high * 16 + low));
  }
  return bytes;
}

}  // namespace kiln
