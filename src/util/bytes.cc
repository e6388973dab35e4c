#include "util/bytes.h"

#include <charconv>
#include <cstdint>

namespace kiln {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

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
  for (const char* at = hex.data(); at != hex.data() + hex.size(); at += 2) {
    std::uint8_t byte = 0;
    if (std::from_chars(at, at + 2, byte, 16).ptr != at + 2)
      return std::nullopt;
    bytes.push_back(std::byte{byte});
  }
  return bytes;
}

}  // namespace kiln
