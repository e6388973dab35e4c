#include "util/bytes.h"

#include <gtest/gtest.h>

#include "util/little_endian.h"

namespace kiln {
namespace {

TEST(Hex, SpellsEveryByteAndBack) {
  Bytes all;
  for (int value = 0; value < 256; ++value)
    all.push_back(std::byte{static_cast<unsigned char>(value)});
  const std::string hex = to_hex(all);
  EXPECT_EQ(hex.substr(0, 8), "00010203");
  EXPECT_EQ(hex.substr(508), "feff");
  EXPECT_EQ(from_hex(hex), all);
}

TEST(Hex, TakesUpperCaseDigits) {
  EXPECT_EQ(from_hex("FF0a"), from_hex("ff0A"));
}

TEST(Hex, OfNothingIsNothing) {
  EXPECT_EQ(to_hex({}), "");
  EXPECT_EQ(from_hex(""), Bytes());
}

TEST(Hex, RefusesOddLengthsAndForeignDigits) {
  for (const char* text : {"a", "abc", "0g", "0x", " 0", "0-"})
    EXPECT_EQ(from_hex(text), std::nullopt) << text;
}

TEST(LittleEndian, StoresTheLowByteFirstAndLoadsItBack) {
  Bytes bytes;
  append_le(bytes, std::uint16_t{0x0102});
  append_le(bytes, std::uint32_t{0x03040506});
  append_le(bytes, std::uint64_t{0x0708090a0b0c0d0eULL});
  EXPECT_EQ(to_hex(bytes), "0201060504030e0d0c0b0a090807");
  EXPECT_EQ(load_le<std::uint16_t>(bytes, 0), 0x0102);
  EXPECT_EQ(load_le<std::uint32_t>(bytes, 2), 0x03040506U);
  EXPECT_EQ(load_le<std::uint64_t>(bytes, 6), 0x0708090a0b0c0d0eULL);
}

TEST(LittleEndian, KeepsTheHighestBit) {
  Bytes bytes;
  append_le(bytes, ~std::uint64_t{0});
  EXPECT_EQ(load_le<std::uint64_t>(bytes, 0), ~std::uint64_t{0});
}

}  // namespace
}  // namespace kiln
