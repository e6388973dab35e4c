#include "util/base64.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

std::string decoded(std::string_view text) {
  const auto bytes = decode_base64(text);
  return bytes ? std::string(as_text(*bytes)) : "none";
}

TEST(Base64, DecodesTheVectorsOfRfc4648) {
  EXPECT_EQ(decoded(""), "");
  EXPECT_EQ(decoded("Zg=="), "f");
  EXPECT_EQ(decoded("Zm8="), "fo");
  EXPECT_EQ(decoded("Zm9v"), "foo");
  EXPECT_EQ(decoded("Zm9vYg=="), "foob");
  EXPECT_EQ(decoded("Zm9vYmE="), "fooba");
  EXPECT_EQ(decoded("Zm9vYmFy"), "foobar");
}

TEST(Base64, WhatIsEncodedIsDecoded) {
  for (const char* const text : {"", "f", "fo", "foo", "foob", "fooba", "foobar"})
    EXPECT_EQ(decoded(encode_base64(as_bytes(text))), text);
}

TEST(Base64, WhatIsNoBase64IsRefused) {
  for (const char* const text :
       {"Z", "Zm9", "Zm9v\n", " m9v", "Zm*v", "====", "Z===", "Zm=v", "Zm9vY==="})
    EXPECT_EQ(decoded(text), "none") << text;
}

}  // namespace
}  // namespace kiln
