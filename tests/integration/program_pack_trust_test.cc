// What a signed pack is besides its objects: a name, and a place in an order. Whoever
// holds the server can give out another pack with a good signature, or an older one.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "codec/private_key.h"
#include "tests/integration/program_machines.h"
#include "tests/support/object_server.h"
#include "tests/support/sample_pack.h"
#include "util/read_file.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::ObjectServer;
using test::operator+;
using testing::AllOf;
using testing::HasSubstr;
using Arguments = test::KilnProgram::Arguments;

const Arguments kWarm{"warm", "--template", "tiny_fwd", "--arch", "9.0"};

class ProgramPackTrustTest : public ProgramMachinesTest {
 protected:
  ProgramPackTrustTest() { make_key("ours"); }

  void trust_ours() { kiln_.set("KILN_REMOTE_KEYS", place("ours.pub")); }
  /// Of all that is in the cache, signed.
  std::string pack(const std::string& name, const Arguments& more = {}) {
    const auto packed =
        kiln_.run(Arguments{"pack", "-o", place(name), "--sign", place("ours")} + more);
    EXPECT_EQ(packed.status, 0) << packed.text();
    return place(name);
  }
  std::string warm_and_pack(const std::string& name, const Arguments& more = {}) {
    EXPECT_EQ(kiln_.json_of(kWarm)["compiled"], kObjects);
    return pack(name, more);
  }
  [[nodiscard]] std::string text_of(const std::string& file) const {
    return read_text_file(file, 1 << 24).value();
  }
  std::string refusal(const Arguments& arguments, int status = 1) {
    const auto refused = kiln_.run(arguments);
    EXPECT_EQ(refused.status, status) << refused.text();
    return refused.err;
  }
};

TEST_F(ProgramPackTrustTest, AServerThatGivesOnePackForAnotherIsRefused) {
  ObjectServer server;
  const std::string a = warm_and_pack("a.kpack");
  const std::string compressed = pack("c.kpack.zst");
  server.put("/kiln/packs/a.kpack", text_of(a));
  server.put("/kiln/packs/b.kpack", text_of(a));
  server.put("/kiln/packs/c.kpack", text_of(compressed));
  trust_ours();
  kiln_.set("KILN_REMOTE", server.url());
  use_machine("node");
  for (const char* const name : {"b", "b.kpack"})
    EXPECT_THAT(refusal({"pull", "--pack", name}),
                HasSubstr(fmt::format("the pack calls itself a.kpack, and {} was asked "
                                      "for: somebody has renamed it",
                                      name)));
  EXPECT_FALSE(fs::exists(place("node/objects")));
  EXPECT_THAT(refusal({"pull", "--pack", "b", "-o", place("kept.kpack")}),
              HasSubstr("calls itself a.kpack"));
  EXPECT_FALSE(fs::exists(place("kept.kpack")));
  EXPECT_EQ(kiln_.json_of({"pull", "--pack", "a"})["stored"], kObjects);
  EXPECT_EQ(kiln_.json_of({"pull", "--pack", "c"})["already_there"], kObjects)
      << "compression is no part of the name";
  kiln_.set("KILN_REMOTE", server.url() + ";unsigned=1");
  EXPECT_EQ(kiln_.json_of({"pull", "--pack", "b"})["already_there"], kObjects)
      << "without a signature a name is worth nothing";
}

TEST_F(ProgramPackTrustTest, ARenamedPackIsUnpackedUnderItsOwnNameOrWithoutKeys) {
  const std::string a = warm_and_pack("a.kpack");
  fs::copy(a, place("b.kpack"));
  use_machine("node");
  EXPECT_EQ(kiln_.json_of({"unpack", place("b.kpack")})["stored"], kObjects);
  trust_ours();
  EXPECT_THAT(refusal({"unpack", place("b.kpack")}),
              HasSubstr("calls itself a.kpack, and b.kpack was asked for"));
  EXPECT_EQ(kiln_.json_of({"unpack", place("b.kpack"), "--name", "a"})["already_there"],
            kObjects);
  EXPECT_EQ(kiln_.json_of({"unpack", a})["already_there"], kObjects);
}

TEST_F(ProgramPackTrustTest, TheNameInASignatureFileBesideThePackCounts) {
  kiln_.json_of(kWarm);
  const std::string plain = place("plain.kpack");
  ASSERT_EQ(kiln_.run({"pack", "-o", plain}).status, 0);
  const PrivateKey key = PrivateKey::read(place("ours")).value();
  const auto sign = [&](const std::string& file, std::string_view comment) {
    const auto digest = Blake2bHasher::of(as_bytes(text_of(file))).value();
    test::write_bytes(file + ".minisig",
                      as_bytes(make_minisig(digest, key.signer(), comment).value()));
  };
  trust_ours();
  use_machine("node");
  sign(plain, "timestamp:1700000000\tfile:other.kpack\thashed");
  EXPECT_THAT(refusal({"unpack", plain}), HasSubstr("calls itself other.kpack"));
  sign(plain, "timestamp:1700000000\tfile:plain.kpack\thashed");
  EXPECT_EQ(kiln_.json_of({"unpack", plain})["stored"], kObjects);
  const std::string moved = place("moved.kpack");
  fs::copy(plain, moved);
  fs::copy(plain + ".minisig", moved + ".minisig");
  EXPECT_THAT(refusal({"unpack", moved}), HasSubstr("calls itself plain.kpack"));
  sign(moved, "timestamp:1700000000\tfile:moved.kpack\thashed");
  EXPECT_EQ(kiln_.json_of({"unpack", moved})["already_there"], kObjects)
      << "its signer has renamed it";
  sign(moved, "no name");
  EXPECT_THAT(refusal({"unpack", moved}), HasSubstr("calls itself plain.kpack"))
      << "then it is that of the header";
}

TEST_F(ProgramPackTrustTest, ASignedSeedMustHaveTheNameOfItsFile) {
  const std::string a = warm_and_pack("a.kpack");
  fs::copy(a, place("b.kpack"));
  trust_ours();
  kiln_.set("KILN_SEED", place("b.kpack") + ";signed=1:" + a + ";signed=1");
  const json seeds = kiln_.json_of({"stats"})["seeds"];
  EXPECT_THAT(seeds[0]["error"]["message"].get<std::string>(),
              HasSubstr("b.kpack: the pack calls itself a.kpack"));
  EXPECT_TRUE(seeds[1]["error"].is_null());
  kiln_.set("KILN_SEED", place("b.kpack"));
  EXPECT_TRUE(kiln_.json_of({"stats"})["seeds"][0]["error"].is_null());
}

TEST_F(ProgramPackTrustTest, WhatNobodyWouldTakeUnderItsNameIsNotSent) {
  ObjectServer server;
  const std::string a = warm_and_pack("a.kpack");
  const std::string unsigned_one = place("u.kpack");
  ASSERT_EQ(kiln_.run({"pack", "-o", unsigned_one}).status, 0);
  trust_ours();
  kiln_.set("KILN_REMOTE", server.url());
  const Arguments sign{"--sign", place("ours")};
  for (const Arguments& wrong :
       {Arguments{"push", "--pack", a, "--name", "b"},
        Arguments{"push", "--pack", a, "--name", "b"} + sign,
        Arguments{"push", "--pack", unsigned_one, "--name", "b"} + sign})
    EXPECT_THAT(refusal(wrong, 2),
                AllOf(HasSubstr("calls itself"), HasSubstr("kiln pack -o b.kpack")));
  EXPECT_EQ(server.files().size(), 0U);
  EXPECT_EQ(kiln_.json_of({"push", "--pack", a, "--name", "a"})["sent"], 1);
  kiln_.set("KILN_REMOTE", server.url() + ";unsigned=1");
  EXPECT_EQ(kiln_.json_of({"push", "--pack", unsigned_one, "--name", "b"})["sent"], 1);
}

}  // namespace
}  // namespace kiln
