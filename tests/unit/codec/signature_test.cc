#include "codec/signature.h"

#include <openssl/err.h>

#include <fstream>

#include "codec/private_key.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "tests/support/trusted_keys.h"

namespace kiln {
namespace {

// A key, a text and its signature file, all by minisign 0.11:
//   minisign -GW -p key.pub -s key.sec; minisign -Sm text -s key.sec -t 'a comment'
constexpr std::string_view kText = "kernels\n";
constexpr std::string_view kMinisignKey =
    R"(untrusted comment: minisign public key 3C7EA22FB76E83A8
RWSog263L6J+PGLVmiL7HhUAX8lcESVNveGeJk8cASv6/Qqr27HslXbj
)";
constexpr std::string_view kMinisig =
    R"(untrusted comment: signature from minisign secret key
RUSog263L6J+PFuqaKCq1Qlg2XtrcU3UUVunHJV/AqlesUM6Q9QKGfbXWIn9mBeARbfQBEx0Hq8E0IWQQHjzBCtmm5+ZYQTlBwY=
trusted comment: a comment
dAuQTyiosTCakDt055RV2VI96mona2tvPrTmyMjvQKpZ/UZ01iZewGiS/b9p4xN8VJxtlYplOQ2nuU837U3dDg==
)";

Blake2b512 digest_of(std::string_view text) {
  return Blake2bHasher::of(as_bytes(text)).value();
}

class SignatureTest : public testing::Test {
 protected:
  const PrivateKey ours_ = PrivateKey::generate().value();
  const PrivateKey theirs_ = PrivateKey::generate().value();
  const Blake2b512 digest_ = digest_of(kText);
};

TEST_F(SignatureTest, AFileSignedByMinisignIsAccepted) {
  const auto keys = parse_trusted_keys(kMinisignKey).value();
  EXPECT_TRUE(check_minisig(kMinisig, digest_, keys));
  EXPECT_EQ(to_text(keys.keys.at(0).key), kMinisignKey);
  EXPECT_EQ(check_minisig(kMinisig, digest_of("other"), keys).error().code,
            ErrorCode::kUntrusted);
}

TEST_F(SignatureTest, EachChangedByteOfASignatureFileIsNoticed) {
  const auto keys = parse_trusted_keys(kMinisignKey).value();
  const std::size_t begin = kMinisig.find('\n');  // the first line is not trusted
  for (std::size_t i = begin; i < kMinisig.size(); ++i) {
    std::string changed(kMinisig);
    changed[i] = changed[i] == 'x' ? 'y' : 'x';
    EXPECT_FALSE(check_minisig(changed, digest_, keys)) << i;
    EXPECT_FALSE(check_minisig(kMinisig.substr(0, i), digest_, keys) &&
                 i + 1 < kMinisig.size())
        << i;
  }
}

TEST_F(SignatureTest, TheFileThatASignatureIsOfIsInItsTrustedComment) {
  const auto named = [&](std::string_view comment) {
    const std::string file = make_minisig(digest_, ours_.signer(), comment).value();
    return std::string(signed_file(file));
  };
  EXPECT_EQ(named("timestamp:1700000000\tfile:a b.kpack\thashed"), "a b.kpack");
  EXPECT_EQ(named("file:a.kpack"), "a.kpack");
  EXPECT_EQ(named("file:"), "");
  EXPECT_EQ(named("a comment on my file:a.kpack"), "");
  EXPECT_EQ(signed_file("untrusted comment: file:a.kpack\n"), "");
  EXPECT_EQ(signed_file(""), "");
}

TEST_F(SignatureTest, WhatIsSignedHereIsAcceptedFromATrustedKeyAlone) {
  const std::string file = make_minisig(digest_, ours_.signer(), "a comment").value();
  EXPECT_EQ(check_minisig(file, digest_,
                          test::trusting({theirs_.public_key(), ours_.public_key()})),
            ours_.public_key());
  EXPECT_EQ(
      check_minisig(file, digest_, test::trusting({theirs_.public_key()})).error().code,
      ErrorCode::kUntrusted);
  PublicKey impostor = theirs_.public_key();
  impostor.id = ours_.public_key().id;
  EXPECT_FALSE(check_minisig(file, digest_, test::trusting({impostor})));
}

TEST_F(SignatureTest, ASignatureOfAnUnhashedFileIsNone) {
  // An old minisign wrote "Ed" where it signed the file itself.
  std::string file = make_minisig(digest_, ours_.signer(), "").value();
  file.replace(file.find("\nRU") + 1, 2, "RW");
  EXPECT_EQ(
      check_minisig(file, digest_, test::trusting({ours_.public_key()})).error().code,
      ErrorCode::kInvalidArgument);
}

TEST_F(SignatureTest, ABlockIsFoundAtTheEndAndNowhereElse) {
  const std::vector<Signature> signatures{
      {ours_.public_key().id, ours_.signer().sign(digest_).value()},
      {theirs_.public_key().id, theirs_.signer().sign(digest_).value()}};
  Bytes file(100);
  const Bytes block = encode_signatures(signatures);
  file.insert(file.end(), block.begin(), block.end());
  EXPECT_EQ(signatures_at_end(file).signatures, signatures);
  EXPECT_EQ(signatures_at_end(file).size, block.size());
  for (std::size_t cut = 0; cut < file.size(); ++cut)
    EXPECT_EQ(signatures_at_end(ByteView(file).first(cut)).size, 0U) << cut;
  EXPECT_EQ(signatures_at_end(ByteView(block).subspan(1)).size, 0U);
  EXPECT_LE(block.size(), kLargestSignatureBlock);
}

TEST_F(SignatureTest, OneTrustedSignatureIsEnoughAndNoneIsNot) {
  const TrustedKeys trusted = test::trusting({ours_.public_key()});
  const Signature ours{ours_.public_key().id, ours_.signer().sign(digest_).value()};
  const Signature theirs{theirs_.public_key().id,
                         theirs_.signer().sign(digest_).value()};
  EXPECT_TRUE(check_signed(digest_, std::vector{theirs, ours}, trusted));
  EXPECT_FALSE(check_signed(digest_, std::vector{theirs}, trusted));
  EXPECT_FALSE(check_signed(digest_, {}, trusted));
  EXPECT_FALSE(check_signed(digest_of("other"), std::vector{ours}, trusted));
}

TEST_F(SignatureTest, EachChangedBitIsNoticedAndLeavesNoErrorToTheHost) {
  const PublicKey key = ours_.public_key();
  const Ed25519Signature right = ours_.signer().sign(digest_).value();
  ASSERT_TRUE(verify(key, digest_, right));
  ERR_clear_error();
  for (std::size_t bit = 0; bit < 8 * right.size(); ++bit) {
    Ed25519Signature wrong = right;
    wrong[bit / 8] ^= std::byte(1U << bit % 8);
    EXPECT_FALSE(verify(key, digest_, wrong)) << bit;
  }
  EXPECT_EQ(ERR_peek_error(), 0U);
}

TEST(PrivateKey, IsReadBackWithItsId) {
  const test::TempDir dir;
  const PrivateKey key = PrivateKey::generate().value();
  const fs::path path = dir.path() / "key.pem";
  std::ofstream(path) << key.to_pem().value();
  fs::permissions(path, fs::perms(0600));
  EXPECT_EQ(PrivateKey::read(path).value().public_key(), key.public_key());
}

TEST(PrivateKey, ThatOthersMayReadIsRefused) {
  const test::TempDir dir;
  const fs::path path = dir.path() / "key.pem";
  std::ofstream(path) << PrivateKey::generate().value().to_pem().value();
  for (const unsigned mode : {0644U, 0640U, 0620U}) {
    fs::permissions(path, fs::perms(mode));
    EXPECT_EQ(PrivateKey::read(path).error().code, ErrorCode::kUntrusted) << mode;
  }
}

TEST(PrivateKey, WhatIsNoKeyIsWrongInput) {
  const test::TempDir dir;
  const fs::path path = dir.path() / "key.pem";
  std::ofstream(path) << "-----BEGIN PRIVATE KEY-----\nMC4\n";
  // Nor is it called a private key that others may read.
  for (const unsigned mode : {0600U, 0644U}) {
    fs::permissions(path, fs::perms(mode));
    EXPECT_EQ(PrivateKey::read(path).error().code, ErrorCode::kInvalidArgument) << mode;
  }
  EXPECT_EQ(PrivateKey::read(dir.path() / "none").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace kiln
