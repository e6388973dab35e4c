#include "codec/trusted_keys.h"

#include "tests/support/is_error.h"
#include "tests/support/paths.h"
#include "tests/support/test.h"
#include "tests/support/trusted_keys.h"
#include "util/read_file.h"

namespace kiln {
namespace {

using test::IsError;
using test::line_of;
using test::trusting;

class TrustedKeysTest : public testing::Test {
 protected:
  [[nodiscard]] Signature by(const PrivateKey& key) const {
    return {key.public_key().id, key.signer().sign(digest_).value()};
  }
  [[nodiscard]] Result<std::vector<KeyId>> check(
      const std::string& file, const std::vector<Signature>& signatures,
      const SignedThing& what = {}) const {
    return check_signed(digest_, signatures, parse_trusted_keys(file).value(), what);
  }
  static SignedThing pack(std::string_view name) {
    return {SignedThing::Kind::kPack, name};
  }
  static void expect_wrong(const std::string& file, const std::string& why) {
    EXPECT_THAT(parse_trusted_keys(file),
                IsError(ErrorCode::kInvalidArgument, HasSubstr(why)))
        << file;
  }
  [[nodiscard]] std::string ours() const { return key_name(ours_.public_key().id); }

  const PrivateKey ours_ = PrivateKey::generate().value();
  const PrivateKey theirs_ = PrivateKey::generate().value();
  const Blake2b512 digest_ = Blake2bHasher::of(as_bytes("kernels")).value();
  const std::string both_ = line_of(ours_.public_key()) + line_of(theirs_.public_key());
};

TEST_F(TrustedKeysTest, AFileMayHaveSeveralKeysAndNothingUnknown) {
  const std::string both = to_text(ours_.public_key()) + to_text(theirs_.public_key());
  std::string of_windows;
  for (const char c : both) of_windows += c == '\n' ? "\r\n" : std::string(1, c);
  for (const std::string& text :
       {both, both_, of_windows, "# ours\n\n" + both, both_ + "  # the last"}) {
    const auto read = parse_trusted_keys(text);
    ASSERT_TRUE(read) << text << read.error().message;
    ASSERT_EQ(read->keys.size(), 2U);
    EXPECT_EQ(read->keys[0].key, ours_.public_key());
    EXPECT_EQ(read->keys[1].key, theirs_.public_key());
  }
  expect_wrong("", "it has no public key");
  expect_wrong("untrusted comment: alone\n", "it has no public key");
  expect_wrong(both_ + "more\n", "line 3: it is no public key");
  expect_wrong(both_.substr(0, both_.size() - 5), "line 2: it is no public key");
}

TEST_F(TrustedKeysTest, AnUnknownWordOrLineIsAnErrorThatNamesTheLine) {
  const std::string key = both_.substr(0, both_.find('\n'));
  for (const auto& [line, why] :
       {std::pair{key + " pack=a", "line 3: 'pack=a'"},
        {key + " packs=", "'packs='"},
        {key + " packs=a packs=b", "'packs=b'"},
        {key + " kinds=pack", "'kinds=pack'"},
        {key + " kinds=objects packs=a", "exclude each other"},
        {std::string("revoked"), "line 3: it is neither"},
        {std::string("revoked key"), "'' is no name of a key"},
        {std::string("revoked key 12345"), "'12345' is no name of a key"},
        {std::string("revoked key 0123456789ABCDEG"), "no name of a key"},
        {std::string("revoked key 0123456789ABCDEF0"), "no name of a key"},
        {"revoked key " + ours() + " today", "'today' is too much"},
        {std::string("revoked object 0123"), "it is neither"},
        {"revoked objects " + std::string(64, 'a'), "it is neither"},
        {std::string("signatures 0"), "line 3: '0' is not"},
        {std::string("signatures 17"), "'17' is not"},
        {std::string("signatures two"), "'two' is not"},
        {std::string("signatures 3"), "it wants 3 signatures, and has 2 keys"}})
    expect_wrong(both_ + line + "\n", why);
}

TEST_F(TrustedKeysTest, ASignatureByARevokedKeyCountsForNothingAlsoIfTheKeyIsListed) {
  EXPECT_TRUE(check(both_, {by(ours_)}));
  for (const std::string& file : {both_ + "revoked key " + ours() + "\n",
                                  "revoked key " + ours() + "  # stolen\n" + both_}) {
    EXPECT_THAT(check(file, {by(ours_)}),
                IsError(ErrorCode::kUntrusted, HasSubstr("signed by the key " + ours() +
                                                         ", which is revoked")));
    EXPECT_TRUE(check(file, {by(ours_), by(theirs_)})) << "theirs is good";
    EXPECT_FALSE(parse_trusted_keys(file)->trusts(ours_.public_key().id));
  }
  const std::string all = line_of(ours_.public_key()) + "revoked key " + ours();
  EXPECT_THAT(check(all, {by(ours_)}),
              IsError(ErrorCode::kUntrusted, HasSubstr("revoked")))
      << "a file whose keys are all revoked trusts nobody";
  EXPECT_FALSE(check(all, {}));
}

TEST_F(TrustedKeysTest, ARevokedKeyIsRevokedUnderEveryId) {
  PublicKey alias = ours_.public_key();
  alias.id[0] ^= std::byte{1};
  Signature as_alias = by(ours_);
  as_alias.key = alias.id;
  const std::string file = both_ + line_of(alias);
  EXPECT_TRUE(check(file, {as_alias}));
  EXPECT_FALSE(check(file + "revoked key " + ours(), {as_alias}));
}

TEST_F(TrustedKeysTest, RevokedObjectsAreNamedByTheirKeys) {
  const Digest object = Digest::of(as_bytes("object"));
  EXPECT_TRUE(parse_trusted_keys(both_ + "revoked object " + object.hex() + "\n")
                  ->revoked_objects.contains(object));
}

TEST_F(TrustedKeysTest, SeveralSignaturesAreThoseOfDifferentKeys) {
  const std::string file = both_ + "signatures 2\n";
  EXPECT_EQ(check(file, {by(ours_), by(theirs_)})->size(), 2U);
  EXPECT_THAT(
      check(file, {by(ours_)}),
      IsError(ErrorCode::kUntrusted, HasSubstr("needs signatures by 2 trusted keys, "
                                               "and has 1")));
  EXPECT_FALSE(check(file, {by(ours_), by(ours_)})) << "the same key twice";
  EXPECT_FALSE(check(file, {}));
  // Nor does one key under two ids count twice.
  PublicKey alias = ours_.public_key();
  alias.id[0] ^= std::byte{1};
  Signature as_alias = by(ours_);
  as_alias.key = alias.id;
  EXPECT_FALSE(check(file + line_of(alias), {by(ours_), as_alias}));
  expect_wrong(line_of(ours_.public_key()) + line_of(alias) + "signatures 2",
               "has 1 keys");
  EXPECT_FALSE(check(file + "revoked key " + ours(), {by(ours_), by(theirs_)}))
      << "one of them is revoked";
  const PrivateKey third = PrivateKey::generate().value();
  EXPECT_THAT(check(file, {by(third), by(ours_)}),
              IsError(ErrorCode::kUntrusted, HasSubstr("none of the 2 trusted keys")));
}

TEST_F(TrustedKeysTest, TwoKeysOfOneIdAreTwoKeys) {
  PublicKey impostor = theirs_.public_key();
  impostor.id = ours_.public_key().id;
  Signature theirs = by(theirs_);
  theirs.key = impostor.id;
  const TrustedKeys both = trusting({impostor, ours_.public_key()});
  EXPECT_TRUE(check_signed(digest_, std::vector{by(ours_)}, both));
  EXPECT_TRUE(check_signed(digest_, std::vector{theirs}, both));
  EXPECT_FALSE(
      check_signed(digest_, std::vector{theirs}, trusting({ours_.public_key()})))
      << "an id is only a name";
  const std::string file = line_of(impostor) + line_of(ours_.public_key());
  EXPECT_EQ(check(file + "signatures 2", {by(ours_), theirs})->size(), 2U);
  EXPECT_FALSE(check(file + "revoked key " + ours(), {theirs}))
      << "who revokes an id means every key of that id";
}

TEST_F(TrustedKeysTest, AKeyMayBeBoundToNamesAndKinds) {
  const auto bound = [&](const std::string& words) {
    return line_of(ours_.public_key(), words);
  };
  const std::vector<Signature> signatures{by(ours_)};
  const std::string jobs = bound("packs=job-*,llama.kpack");
  for (const char* const name : {"job-1.kpack", "job-1.kpack.zst", "job-",
                                 "llama.kpack", "llama.kpack.zst", "llama"})
    EXPECT_TRUE(check(jobs, signatures, pack(name))) << name;
  for (const char* const name : {"", "job", "ajob-1", "llama-3.kpack", "LLAMA"})
    EXPECT_THAT(
        check(jobs, signatures, pack(name)),
        IsError(ErrorCode::kUntrusted, HasSubstr("may sign no pack of the name")))
        << name;
  EXPECT_THAT(check(jobs, signatures),
              IsError(ErrorCode::kUntrusted, HasSubstr("may sign no objects")))
      << "it could plant any kernel";
  EXPECT_TRUE(check(bound("kinds=packs,objects packs=job-*"), signatures));
  EXPECT_FALSE(check(bound("kinds=packs,objects packs=job-*"), signatures, pack("a")));
  EXPECT_TRUE(check(bound("kinds=objects"), signatures));
  EXPECT_FALSE(check(bound("kinds=objects"), signatures, pack("a")));
  EXPECT_TRUE(check(bound("kinds=packs"), signatures, pack("")));
  EXPECT_FALSE(check(bound("kinds=packs"), signatures));
  EXPECT_TRUE(check(bound("kinds=packs") + bound("kinds=objects"), signatures))
      << "listed twice, it may do both";
}

TEST_F(TrustedKeysTest, ASignatureFileCountsForTheNameInIt) {
  const std::string jobs = line_of(ours_.public_key(), "packs=job-*");
  const auto check = [&](std::string_view comment) {
    return check_minisig(make_minisig(digest_, ours_.signer(), comment).value(),
                         digest_, parse_trusted_keys(jobs).value());
  };
  EXPECT_TRUE(check("file:job-1.kpack"));
  EXPECT_FALSE(check("file:other.kpack"));
  EXPECT_FALSE(check("no name"));
}

TEST_F(TrustedKeysTest, TheKeyFileOfTheDocumentsIsOne) {
  const std::string page =
      read_text_file(test::paths::source("docs/admin.md"), 1U << 20U).value();
  const std::size_t begin = page.find("```text\n# the build farm\n");
  ASSERT_NE(begin, std::string::npos);
  const auto read = parse_trusted_keys(std::string_view(page).substr(
      begin + 8, page.find("```", begin + 8) - begin - 8));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->keys.size(), 2U);
  EXPECT_EQ(read->keys[1].packs.size(), 2U);
  EXPECT_EQ(read->revoked_keys.size(), 1U);
  EXPECT_EQ(read->revoked_objects.size(), 1U);
}

TEST_F(TrustedKeysTest, AFileMayHaveManyLines) {
  std::string file;
  for (int i = 0; i < 10'000; ++i) {
    PublicKey key = theirs_.public_key();
    key.id[0] = std::byte(i % 256);
    key.id[1] = std::byte(i / 256);
    file +=
        i % 2 == 0 ? line_of(key) : "revoked object " + Digest::of(key.id).hex() + "\n";
  }
  const auto read = parse_trusted_keys(file + line_of(ours_.public_key()));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->keys.size(), 5001U);
  EXPECT_EQ(read->revoked_objects.size(), 5000U);
  EXPECT_TRUE(check_signed(digest_, std::vector{by(ours_)}, *read));
}

}  // namespace
}  // namespace kiln
