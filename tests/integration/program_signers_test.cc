// Who signed what a cache has: how it is remembered and shown, and how an administrator
// finds and removes what a key has signed, after the key was lost.

#include <fmt/format.h>

#include <fstream>

#include "cache/layout.h"
#include "codec/private_key.h"
#include "tests/integration/program_machines.h"
#include "tests/support/kernel_sources.h"
#include "tests/support/object_server.h"
#include "tests/support/test.h"
#include "tests/support/trusted_keys.h"

namespace kiln {
namespace {

using test::line_of;
using test::ObjectServer;

const Arguments kWarm{"warm", "--template", "tiny_fwd", "--arch", "9.0"};

/// Two keys are trusted. Each has signed a pack of one kernel, and a node has unpacked
/// both, and built another kernel.
class ProgramSignersTest : public ProgramMachinesTest {
 protected:
  ProgramSignersTest() {
    for (const char* const name : {"ours", "theirs"}) make_key(name);
    trust(key("ours"), key("theirs"));
    kiln_.set("KILN_REMOTE_KEYS", keys_);
    for (const char* const name : {"ours", "theirs"}) {
      use_machine(std::string("of ") + name);
      compile(name);
      pack(name);
    }
    use_machine("node");
    for (const char* const name : {"ours", "theirs"}) unpack(name);
    compile("built_here");
  }

  [[nodiscard]] PublicKey key(const std::string& name) const {
    return PrivateKey::read(place(name)).value().public_key();
  }
  [[nodiscard]] std::string id(const std::string& name) const {
    return key_name(key(name).id);
  }
  template <typename... Keys>
  void trust(const Keys&... keys) {
    write_keys((line_of(keys) + ...));
  }
  void write_keys(const std::string& text) { test::replace_keys(keys_, text); }
  void compile(const std::string& name) {
    const std::string source = kiln_.write(
        name + ".cu", "extern \"C\" __global__ void " + name + "(float*) {}\n");
    EXPECT_EQ(kiln_.json_of({"compile", source, "--arch", "9.0"})["compiled"], 1);
  }
  std::string pack(const std::string& name) {
    std::string file = place(name + ".kpack");
    const auto packed =
        kiln_.run({"pack", "-o", file, "--serial", "7", "--sign", place(name)});
    EXPECT_EQ(packed.status, 0) << packed.text();
    return file;
  }
  void unpack(const std::string& name) {
    EXPECT_EQ(kiln_.json_of({"unpack", place(name + ".kpack")})["failed"], 0);
  }
  json ls(const Arguments& more = {}) {
    return kiln_.json_of(Arguments{"ls"} + more)["entries"];
  }
  std::string key_of(const std::string& file) {
    return ls({"--file", file + ".cu"}).at(0)["key"];
  }
  json verify(int status, const Arguments& more = {}) {
    return kiln_.json_of(Arguments{"verify", "--keys", keys_} + more, status);
  }

  const std::string keys_ = place("trusted.pub");
};

TEST_F(ProgramSignersTest, ListingsAndShowSayWhoSignedAndWhereItIsFrom) {
  ASSERT_EQ(ls().size(), 3U);
  for (const char* const name : {"ours", "theirs"}) {
    const json listed = ls({"--signer", id(name)});
    ASSERT_EQ(listed.size(), 1U) << name;
    EXPECT_EQ(listed[0]["file"], std::string(name) + ".cu");
    EXPECT_EQ(
        listed[0]["signed_by"],
        json::array({{{"key", id(name)}, {"from", std::string(name) + ".kpack@7"}}}));
    const auto shown = kiln_.run({"show", key_of(name)});
    EXPECT_THAT(shown.out,
                HasSubstr(fmt::format("{}, from {}.kpack@7", id(name), name)));
    EXPECT_EQ(kiln_.json_of({"show", key_of(name)})["signed_by"],
              listed[0]["signed_by"]);
  }
  EXPECT_EQ(
      ls({"--signer", id("ours"), "--signer", id("theirs"), "--limit", "1"}).size(),
      1U);
  const auto built = kiln_.json_of({"show", key_of("built_here")});
  EXPECT_EQ(built["signed_by"], json::array());
  EXPECT_THAT(kiln_.run({"show", key_of("built_here")}).out,
              Not(HasSubstr("signed by")));
  EXPECT_EQ(kiln_.run({"ls", "--signer", "ours"}).status, 2);
  EXPECT_EQ(ls({"--signer", "0123456789abcdef"}).size(), 0U);
}

TEST_F(ProgramSignersTest, AfterAKeyIsLostVerifyFindsWhatItSignedAndClearRemovesThat) {
  const json sound = verify(0);
  EXPECT_EQ(sound["trusted"], 2);
  EXPECT_EQ(sound["without_signer"], 1);
  EXPECT_EQ(sound["distrusted"], json::array());
  write_keys(line_of(key("ours")) + line_of(key("theirs")) + "revoked key " +
             id("theirs") + "\n");
  const json found = verify(1);
  EXPECT_EQ(found["checked"], 3);
  EXPECT_EQ(found["trusted"], 1);
  EXPECT_EQ(found["without_signer"], 1);
  ASSERT_EQ(found["distrusted"].size(), 1U);
  EXPECT_EQ(found["distrusted"][0]["key"], key_of("theirs"));
  const auto text = kiln_.run({"verify", "--keys", keys_});
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.err, AllOf(HasSubstr("distrusted " + place("node/objects")),
                              HasSubstr(id("theirs") + ", which is revoked (from "
                                                       "theirs.kpack@7)")));
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("1 built here"), HasSubstr("kiln clear --keys")));
  EXPECT_EQ(verify(0, {"--file", "ours.cu"})["trusted"], 1) << "filters hold";
  EXPECT_EQ(kiln_.run({"clear", "--keys", keys_}).status, 2) << "it asks first";
  EXPECT_EQ(kiln_.json_of({"clear", "--keys", keys_, "--yes"})["removed"], 1);
  EXPECT_EQ(verify(0)["without_signer"], 1);
  EXPECT_EQ(ls().size(), 2U);
  EXPECT_EQ(kiln_.json_of({"clear", "--signer", id("ours"), "--yes"})["removed"], 1);
  ASSERT_EQ(ls().size(), 1U);
  EXPECT_EQ(ls()[0]["file"], "built_here.cu");
  compile("ours");
  EXPECT_EQ(ls({"--signer", id("ours")}).size(), 0U) << "now it is built here";
}

TEST_F(ProgramSignersTest, AnUnknownKeyAndARevokedObjectAreReported) {
  trust(key("theirs"));
  EXPECT_EQ(verify(1)["distrusted"][0]["key"], key_of("ours"));
  write_keys(line_of(key("ours")) + line_of(key("theirs")) + "revoked object " +
             key_of("built_here") + "\n");
  EXPECT_THAT(verify(1)["distrusted"][0]["why"].get<std::string>(),
              HasSubstr("the object is revoked"));
  EXPECT_EQ(kiln_.json_of({"clear", "--keys", keys_, "--yes"})["removed"], 1);
  EXPECT_EQ(ls({"--file", "built_here.cu"}).size(), 0U);
  EXPECT_EQ(kiln_.run({"verify", "--keys", place("none")}).status, 2);
}

TEST_F(ProgramSignersTest, APackThatIsSignedAgainByANewKeyCountsForWhatIsThere) {
  trust(key("theirs"));
  verify(1);
  use_machine("of ours");
  fs::rename(place("theirs"), place("kept"));
  fs::copy(place("kept"), place("ours"), fs::copy_options::overwrite_existing);
  pack("ours");
  use_machine("node");
  unpack("ours");
  EXPECT_EQ(verify(0)["trusted"], 2);
}

TEST_F(ProgramSignersTest, ARevokedObjectOfAPackIsNotStoredAndTheRestIs) {
  use_machine("of ours");
  const std::string revoked = key_of("ours");
  compile("second");
  const std::string file = pack("ours");
  write_keys(line_of(key("ours")) + "revoked object " + revoked + "\n");
  use_machine("fresh");
  const json unpacked = kiln_.json_of({"unpack", file});
  EXPECT_EQ(unpacked["stored"], 1);
  EXPECT_EQ(unpacked["revoked"], 1);
  EXPECT_EQ(ls()[0]["file"], "second.cu");
}

TEST_F(ProgramSignersTest, WhatIsPulledHasTheServerAsItsSource) {
  ObjectServer server;
  use_machine("of ours");
  kiln_.set("KILN_REMOTE", server.url());
  const std::string key = key_of("ours");
  EXPECT_EQ(kiln_.json_of({"push", key, "--sign", place("ours")})["sent"], 1);
  use_machine("puller");
  EXPECT_EQ(kiln_.json_of({"pull", key})["pulled"], 1);
  const json listed = ls({"--signer", id("ours")});
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0]["signed_by"][0]["from"], server.url());
  kiln_.set("KILN_REMOTE", server.url() + ";unsigned=1");
  use_machine("careless");
  EXPECT_EQ(kiln_.json_of({"pull", key})["pulled"], 1);
  EXPECT_EQ(ls()[0]["signed_by"], json::array()) << "nobody looked at its signature";
}

TEST_F(ProgramSignersTest, APackNeedsAsManySignaturesAsTheKeyFileSays) {
  write_keys(line_of(key("ours")) + line_of(key("theirs")) + "signatures 2\n");
  use_machine("fresh");
  const auto refused = kiln_.run({"unpack", place("ours.kpack")});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("needs signatures by 2 trusted keys, and has 1"));
  // The second signs the file as it is, as minisign would.
  std::ifstream file(place("ours.kpack"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto digest = Blake2bHasher::of(as_bytes(bytes)).value();
  const auto sign = [&](const std::string& name, const std::string& comment) {
    std::ofstream(place("ours.kpack.minisig"))
        << make_minisig(digest, PrivateKey::read(place(name)).value().signer(), comment)
               .value();
  };
  sign("ours", "file:ours.kpack");
  EXPECT_EQ(kiln_.run({"unpack", place("ours.kpack")}).status, 1)
      << "the same key twice";
  sign("theirs", "file:ours.kpack");
  EXPECT_EQ(kiln_.json_of({"unpack", place("ours.kpack")})["stored"], 1);
  EXPECT_EQ(ls()[0]["signed_by"].size(), 2U);
  EXPECT_EQ(verify(0)["trusted"], 1);
  use_machine("node");
  EXPECT_EQ(verify(1)["distrusted"].size(), 2U) << "one signature each";
}

TEST_F(ProgramSignersTest, AKeyForPacksOfOneNameSignsNoOtherPackAndNoObject) {
  write_keys(line_of(key("ours"), "packs=job-*") + line_of(key("theirs")));
  use_machine("of ours");
  ObjectServer server;
  const std::string object = key_of("ours");
  kiln_.set("KILN_REMOTE", server.url());
  EXPECT_THAT(kiln_.run({"push", object, "--sign", place("ours")}).err,
              HasSubstr("that may sign objects"));
  kiln_.unset("KILN_REMOTE_KEYS");
  EXPECT_EQ(kiln_.json_of({"push", object, "--sign", place("ours")})["sent"], 1);
  kiln_.set("KILN_REMOTE_KEYS", keys_);
  fs::copy(place("ours"), place("job-1"));
  const std::string job = pack("job-1");
  use_machine("fresh");
  EXPECT_THAT(kiln_.run({"unpack", place("ours.kpack")}).err,
              HasSubstr("may sign no pack of the name 'ours.kpack'"));
  EXPECT_THAT(kiln_.json_of({"pull", object}, 1)["problems"][0].dump(),
              HasSubstr("may sign no objects"));
  EXPECT_EQ(kiln_.json_of({"unpack", job})["stored"], 1);
}

TEST_F(ProgramSignersTest, AWrongKeyFileIsSaidWithItsLine) {
  write_keys(line_of(key("ours")) + "trust nobody\n");
  for (const Arguments& each :
       {Arguments{"unpack", place("ours.kpack")}, Arguments{"verify", "--keys", keys_},
        Arguments{"clear", "--keys", keys_, "--yes"},
        Arguments{"key", "show", keys_}}) {
    const auto refused = kiln_.run(each);
    EXPECT_EQ(refused.status, 2) << each[0];
    EXPECT_THAT(refused.err, HasSubstr("trusted.pub: line 2: it is no public key"));
  }
}

TEST_F(ProgramSignersTest, AReadOnlyCacheRemembersNothingAndReadsWhatIsThere) {
  fs::permissions(place("node/signers"), fs::perms(0500));
  EXPECT_EQ(ls({"--signer", id("ours")}).size(), 1U);
  fs::permissions(place("node/signers"), fs::perms(0700));
  fs::remove_all(place("node/signers"));
  fs::create_symlink(place("of ours"), place("node/signers"));
  EXPECT_EQ(ls({"--signer", id("ours")}).size(), 0U);
  ASSERT_EQ(kiln_.json_of({"clear", key_of("ours")})["removed"], 1);
  const auto unpacked = kiln_.run({"unpack", place("ours.kpack")});
  EXPECT_EQ(unpacked.status, 0);
  EXPECT_THAT(unpacked.err, HasSubstr("who signed an object will not be known"));
  EXPECT_FALSE(fs::exists(place("of ours") + "/" + id("ours")));
}

}  // namespace
}  // namespace kiln
