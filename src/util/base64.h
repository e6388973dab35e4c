// Base64 as in RFC 4648, section 4: with padding, without line breaks.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "util/bytes.h"

namespace kiln {

/// nullopt for anything that is not base64.
[[nodiscard]] std::optional<Bytes> decode_base64(std::string_view text);

[[nodiscard]] std::string encode_base64(ByteView bytes);

}  // namespace kiln
