#include "codec/fields.h"

#include <gtest/gtest.h>

#include <utility>

#include "util/little_endian.h"

namespace kiln::cache {
namespace {

Fields sample() {
  Fields fields;
  fields.add("option", "-DA");
  fields.add("option", "-DB");
  fields.add("", std::string("\0\xff", 2));
  return fields;
}

TEST(Fields, SurviveTheirEncoding) {
  EXPECT_EQ(Fields::decode(sample().encode()).value(), sample());
}

TEST(Fields, JoinedValuesAreAnotherList) {
  Fields two;
  two.add("o", "-DA");
  two.add("o", "-DB");
  Fields one;
  one.add("o", "-DA-DB");
  EXPECT_NE(two.digest(), one.digest());
}

TEST(Fields, EveryTruncationIsCorruptOrAShorterList) {
  const Bytes bytes = sample().encode();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto decoded = Fields::decode(ByteView(bytes).first(size));
    EXPECT_TRUE(decoded ? decoded->encode().size() == size
                        : decoded.error().code == ErrorCode::kCorrupt);
  }
}

TEST(Fields, LengthsThatOverflowAreCorrupt) {
  for (const std::uint64_t length : {~0ULL, ~0ULL - 12, 1ULL << 63U}) {
    Bytes bytes;
    append_le(bytes, std::uint32_t{4});
    append_le(bytes, length);
    append(bytes, as_bytes("labelvalue"));
    EXPECT_EQ(Fields::decode(bytes).error().code, ErrorCode::kCorrupt);
  }
}

TEST(Digest, IsTheSha256OfFips180) {
  EXPECT_EQ(Digest::of(as_bytes("abc")).hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, InPiecesIsTheSame) {
  Sha256 hasher;
  hasher.update(as_bytes("a"));
  hasher.update(as_bytes("bc"));
  EXPECT_EQ(hasher.finish(), Digest::of(as_bytes("abc")));
}

TEST(Digest, ReadsOnlySixtyFourHexDigits) {
  const Digest digest = Digest::of(as_bytes("abc"));
  EXPECT_EQ(Digest::from_hex(digest.hex()), digest);
  EXPECT_FALSE(Digest::from_hex(digest.hex().substr(1)));
  EXPECT_FALSE(Digest::from_hex("g" + digest.hex().substr(1)));
}

}  // namespace
}  // namespace kiln::cache
