// What a signed pack is besides its objects: a name, and a place in an order. Whoever
// holds the server can give out another pack with a good signature, or an older one.

#include <fmt/format.h>

#include <algorithm>

#include "codec/private_key.h"
#include "tests/integration/program_machines.h"
#include "tests/support/kernel_sources.h"
#include "tests/support/object_server.h"
#include "tests/support/paths.h"
#include "tests/support/sample_pack.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln {
namespace {

using test::ObjectServer;

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
                                      "for: somebody has renamed the pack",
                                      name)));
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

TEST_F(ProgramPackTrustTest, AnOlderPackIsRefusedUnlessItIsAskedFor) {
  const std::string old = warm_and_pack("job.kpack", {"--serial", "5"});
  fs::create_directory(place("new"));
  const std::string recent = pack("new/job.kpack", {"--serial", "7"});
  const std::string compressed = pack("new/job.kpack.zst", {"--serial", "6"});
  const std::string other = pack("other.kpack", {"--serial", "1"});
  trust_ours();
  use_machine("node");
  EXPECT_EQ(kiln_.json_of({"unpack", recent})["stored"], kObjects);
  for (const auto& [file, serial] : {std::pair{old, 5}, std::pair{compressed, 6}}) {
    EXPECT_THAT(
        refusal({"unpack", file}),
        AllOf(HasSubstr(fmt::format("has serial {}, of 20", serial)),
              HasSubstr("this cache has taken serial 7, of 20"), HasSubstr("--older")));
    EXPECT_EQ(kiln_.json_of({"unpack", file}, 1)["error"]["code"], "untrusted");
  }
  EXPECT_EQ(kiln_.json_of({"unpack", recent})["already_there"], kObjects);
  EXPECT_EQ(kiln_.json_of({"unpack", other})["already_there"], kObjects);
  EXPECT_EQ(kiln_.json_of({"unpack", old, "--older"})["already_there"], kObjects);
  EXPECT_EQ(kiln_.json_of({"unpack", old})["already_there"], kObjects)
      << "it is the last now";
  EXPECT_EQ(kiln_.json_of({"unpack", recent})["already_there"], kObjects);
  EXPECT_EQ(kiln_.run({"unpack", old}).status, 1);
}

TEST_F(ProgramPackTrustTest,
       AServerThatGivesAnOlderPackIsRefusedOnAFreshNodeByMinSerial) {
  ObjectServer server;
  server.put("/kiln/packs/job.kpack",
             text_of(warm_and_pack("job.kpack", {"--serial", "7"})));
  const std::string old = text_of(pack("job.kpack", {"--serial", "5"}));
  trust_ours();
  kiln_.set("KILN_REMOTE", server.url());
  const Arguments pull{"pull", "--pack", "job"};
  const Arguments keep = pull + Arguments{"-o", place("kept.kpack")};
  use_machine("node");
  EXPECT_THAT(refusal(pull + Arguments{"--min-serial", "8"}),
              HasSubstr("has serial 7, of 20"));
  use_machine("fresh");
  EXPECT_THAT(refusal(keep + Arguments{"--min-serial", "8"}),
              HasSubstr("--min-serial 8 asks for a newer pack"));
  EXPECT_FALSE(fs::exists(place("kept.kpack")));
  EXPECT_EQ(kiln_.json_of(keep + Arguments{"--min-serial", "7"})["objects"], kObjects);
  EXPECT_FALSE(fs::exists(place("fresh/packs")));
  use_machine("node");
  EXPECT_EQ(kiln_.json_of(pull)["stored"], kObjects);
  server.put("/kiln/packs/job.kpack", old);
  for (const Arguments& each : {pull, keep})
    EXPECT_THAT(refusal(each), HasSubstr("this cache has taken serial 7"));
  ObjectServer mirror;
  mirror.put("/kiln/packs/job.kpack", text_of(pack("job.kpack", {"--serial", "9"})));
  kiln_.set("KILN_REMOTE", server.url() + " " + mirror.url());
  EXPECT_EQ(kiln_.json_of(pull)["header"]["serial"], 9) << "the next one is asked";
  kiln_.set("KILN_REMOTE", server.url());
  EXPECT_EQ(kiln_.json_of(keep + Arguments{"--older"})["objects"], kObjects);
  for (const Arguments& wrong :
       {pull + Arguments{"--min-serial", "x"},
        Arguments{"pull", "--min-serial", "7", "--template", "tiny_fwd:"},
        Arguments{"pull", "--older", "--template", "tiny_fwd:"}})
    refusal(wrong, 2);
}

TEST_F(ProgramPackTrustTest,
       ASeedThatIsOlderIsUsedAndSaidOnceUnlessMinSerialRefusesIt) {
  const std::string old = warm_and_pack("job.kpack", {"--serial", "5"});
  fs::create_directory(place("new"));
  use_machine("node");
  const std::string other = kiln_.write("other.cu", test::kTinySource);
  ASSERT_EQ(kiln_.json_of({"compile", other, "--arch", "9.0"})["compiled"], 1);
  pack("new/job.kpack", {"--serial", "7"});
  trust_ours();
  EXPECT_EQ(kiln_.json_of({"unpack", place("new/job.kpack")})["already_there"], 1);
  const auto used = kiln_.run(kWarm + Arguments{"--json", "--seed", old, "--dry-run"});
  EXPECT_EQ(hits_of_tier(used.json(), "seed"), kObjects);
  const std::string words = "has serial 5, of 20";
  EXPECT_THAT(used.err, AllOf(HasSubstr(words), HasSubstr(";older=refuse")));
  EXPECT_EQ(used.err.find(words), used.err.rfind(words)) << "said once";
  const auto refused = kiln_.run(
      kWarm + Arguments{"--json", "--seed", old + ";min_serial=7", "--dry-run"});
  EXPECT_EQ(hits_of_tier(refused.json(), "seed"), 0);
  EXPECT_THAT(refused.err, HasSubstr("its serial is 5, and min_serial=7"));
  const auto strict = kiln_.run(
      kWarm + Arguments{"--json", "--seed", old + ";older=refuse", "--dry-run"});
  EXPECT_EQ(hits_of_tier(strict.json(), "seed"), 0);
  EXPECT_THAT(strict.err, HasSubstr("this cache has taken serial 7"));
}

TEST_F(ProgramPackTrustTest, WhatIsRememberedOfPacksIsAHintThatNobodyElseMaySet) {
  const std::string old = warm_and_pack("job.kpack", {"--serial", "5"});
  fs::create_directory(place("new"));
  const std::string recent = pack("new/job.kpack", {"--serial", "7"});
  trust_ours();
  use_machine("node");
  kiln_.json_of({"unpack", recent});
  const fs::path hints = place("node/packs");
  const fs::path hint = fs::directory_iterator(hints)->path();
  fs::permissions(hint, fs::perms(0666));
  EXPECT_EQ(kiln_.run({"unpack", old}).status, 0) << "somebody may have set it";
  kiln_.json_of({"unpack", recent});
  EXPECT_EQ(kiln_.run({"unpack", old}).status, 1);
  test::write_bytes(hint, as_bytes("no fields"));
  EXPECT_EQ(kiln_.run({"unpack", old}).status, 0);
  fs::remove_all(hints);
  test::write_bytes(hints, as_bytes("no folder"));
  const auto unpacked = kiln_.run({"unpack", recent});
  EXPECT_EQ(unpacked.status, 0);
  EXPECT_THAT(unpacked.err, HasSubstr("an older pack will not be noticed"));
}

TEST_F(ProgramPackTrustTest, APackOfVersionOneIsOlderThanAnyThatHasASerial) {
  const std::string recent = warm_and_pack("job.kpack", {"--serial", "1"});
  use_machine("node");
  trust_ours();
  kiln_.json_of({"unpack", recent});
  kiln_.set("KILN_REMOTE_KEYS", "");
  const fs::path old = test::paths::source("tests/unit/cache/golden/pack_v1.bin");
  fs::copy(old, recent, fs::copy_options::overwrite_existing);
  fs::permissions(recent, fs::perms(0644));
  EXPECT_THAT(refusal({"unpack", recent}),
              HasSubstr("the pack job.kpack has serial 0"));
}

TEST_F(ProgramPackTrustTest, APackOfVersionOneIsTakenForANameOnlyIfThatIsAskedFor) {
  const std::string old = place("old.kpack");
  fs::copy(test::paths::source("tests/unit/cache/golden/pack_v1.bin"), old);
  fs::permissions(old, fs::perms(0644));
  const PrivateKey key = PrivateKey::read(place("ours")).value();
  std::string text = text_of(old);
  const auto digest = Blake2bHasher::of(as_bytes(text).last(64)).value();
  const Signature signature{key.public_key().id, key.signer().sign(digest).value()};
  text += as_text(encode_signatures(std::span(&signature, 1)));
  test::write_bytes(old, as_bytes(text));
  trust_ours();
  use_machine("node");
  EXPECT_THAT(
      refusal({"unpack", old}),
      HasSubstr("the pack has no name, as packs of an older Kiln, and old.kpack "
                "was asked for"));
  // Its objects are no kernels.
  EXPECT_EQ(kiln_.json_of({"unpack", old, "--older"}, 1)["objects"], 5);
}

TEST_F(ProgramPackTrustTest, APackThatNobodyIsKnownToHaveSignedSetsNoMemory) {
  const std::string good = warm_and_pack("job.kpack", {"--serial", "5"});
  fs::create_directory(place("evil"));
  const std::string evil = place("evil/job.kpack");
  ASSERT_EQ(kiln_.run({"pack", "-o", evil, "--serial", "9000000000000000000"}).status,
            0);
  use_machine("node");
  EXPECT_EQ(kiln_.json_of({"unpack", evil})["stored"], kObjects);
  EXPECT_FALSE(fs::exists(place("node/packs")));
  trust_ours();
  EXPECT_EQ(kiln_.json_of({"unpack", good})["already_there"], kObjects)
      << "the unsigned one would have locked it out";
  EXPECT_TRUE(fs::exists(place("node/packs")));
}

TEST_F(ProgramPackTrustTest, TheTimeOfAPackIsThatOfItsNewestObjectOrSourceDateEpoch) {
  EXPECT_EQ(kiln_.json_of(kWarm)["compiled"], kObjects);
  std::string newest;
  const json listed = kiln_.json_of({"ls"});
  for (const json& entry : listed["entries"])
    newest = std::max(newest, entry["created"].get<std::string>());
  const Arguments all{"pack", "-o", place("job.kpack")};
  const Arguments requests =
      all + Arguments{"--template", "tiny_fwd:", "--arch", "9.0"};
  for (const Arguments& each : {all, requests})
    EXPECT_EQ(kiln_.json_of(each)["header"]["created"], newest);
  kiln_.set("SOURCE_DATE_EPOCH", "1700000000");
  const json first = kiln_.json_of(all)["header"];
  EXPECT_EQ(first["created"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(first["serial"], 1'700'000'000'000);
  const std::string bytes = text_of(place("job.kpack"));
  EXPECT_EQ(kiln_.json_of(all)["header"], first);
  EXPECT_TRUE(text_of(place("job.kpack")) == bytes);
  for (const char* const wrong : {"now", "-1", "0", "99999999999"}) {
    kiln_.set("SOURCE_DATE_EPOCH", wrong);
    EXPECT_THAT(refusal(all, 2), HasSubstr("SOURCE_DATE_EPOCH"));
  }
}

}  // namespace
}  // namespace kiln
