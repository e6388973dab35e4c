// Text viewed as bytes and bytes as text, and hex digits.

#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;

[[nodiscard]] inline ByteView as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

[[nodiscard]] inline std::string_view as_text(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Lower-case hex, two digits a byte.
[[nodiscard]] std::string to_hex(ByteView bytes);

/// The bytes that `hex` spells, or nullopt for an odd length or any other character.
[[nodiscard]] std::optional<Bytes> from_hex(std::string_view hex);

}  // namespace kiln
