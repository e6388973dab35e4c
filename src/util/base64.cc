#include "util/base64.h"

#include <openssl/evp.h>

#include <algorithm>
#include <limits>

namespace kiln {

std::optional<Bytes> decode_base64(std::string_view text) {
  constexpr std::size_t kGroup = 4;  // characters that encode three bytes
  const auto is_space = [](char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
  };
  // OpenSSL skips white space, and counts the padding as bytes.
  if (text.size() % kGroup != 0 || text.size() > std::numeric_limits<int>::max() ||
      std::ranges::any_of(text, is_space))
    return std::nullopt;
  Bytes bytes(text.size() / kGroup * 3);
  const int decoded =
      ::EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                        reinterpret_cast<const unsigned char*>(text.data()),
                        static_cast<int>(text.size()));
  if (decoded < 0 || static_cast<std::size_t>(decoded) != bytes.size())
    return std::nullopt;
  // OpenSSL accepts '=' anywhere, as an ordinary digit.
  const std::size_t padding = text.size() - std::min(text.size(), text.find('='));
  if (padding > 2 || text.substr(text.size() - padding).find_first_not_of('=') !=
                         std::string_view::npos)
    return std::nullopt;
  bytes.resize(bytes.size() - padding);
  return bytes;
}

std::string encode_base64(ByteView bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // and OpenSSL's NUL
  text.resize(static_cast<std::size_t>(
      ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                        reinterpret_cast<const unsigned char*>(bytes.data()),
                        static_cast<int>(bytes.size()))));
  return text;
}

}  // namespace kiln
