// kiln pack, unpack and key, and seeds: objects on their way to other machines.

#include <fmt/format.h>
#include <sys/stat.h>
#include <zstd.h>

#include <algorithm>
#include <fstream>

#include "cache/pack.h"
#include "codec/private_key.h"
#include "tests/integration/program_machines.h"
#include "tests/support/namespaces.h"
#include "tests/support/sample_pack.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln {
namespace {

const Arguments kWarm{"warm", "--template", "tiny_fwd", "--arch", "9.0"};

class ProgramPackTest : public ProgramMachinesTest {
 protected:
  [[nodiscard]] Bytes bytes_of(const std::string& name) const {
    return read_file(place(name), 1 << 24).value().value();
  }
  std::string warm_and_pack(const Arguments& more = {}) {
    EXPECT_EQ(kiln_.json_of(kWarm)["compiled"], kObjects);
    EXPECT_EQ(
        kiln_.json_of(Arguments{"pack", "-o", place("job.kpack")} + more)["objects"],
        kObjects);
    return place("job.kpack");
  }
};

TEST_F(ProgramPackTest, WhatIsPackedIsUnpackedOnAnotherMachine) {
  const std::string pack = warm_and_pack();
  use_machine("node");
  const json unpacked = kiln_.json_of({"unpack", pack});
  EXPECT_EQ(unpacked["stored"], kObjects);
  EXPECT_TRUE(unpacked["toolchain"].is_string());
  EXPECT_EQ(kiln_.json_of({"unpack", pack})["already_there"], kObjects);
  EXPECT_EQ(kiln_.json_of({"verify"})["checked"], kObjects);
  const json report = kiln_.json_of(kWarm);
  EXPECT_EQ(report["hits"], kObjects);
  EXPECT_EQ(hits_of_tier(report, "disk"), kObjects);
}

TEST_F(ProgramPackTest, NothingToPackIsNoPack) {
  const std::string pack = place("job.kpack");
  EXPECT_EQ(kiln_.json_of(kWarm)["compiled"], kObjects);
  for (const Arguments& none :
       {Arguments{"--arch", "8.0"},
        Arguments{"--template", "tiny_fwd:dtype=bf16", "--arch", "8.0"}}) {
    const auto finished = kiln_.run(Arguments{"pack", "-o", pack} + none);
    EXPECT_EQ(finished.status, 1) << finished.text();
    EXPECT_THAT(finished.text(), HasSubstr("no pack is written"));
    EXPECT_EQ(finished.out.find("`kiln warm` with the same words") != std::string::npos,
              none.size() > 2)
        << finished.text();
    EXPECT_FALSE(fs::exists(pack));
  }
}

TEST_F(ProgramPackTest, UnpackingOntoAFullDiskEndsSoonAndGoesOnWhenThereIsRoom) {
  const std::string pack = warm_and_pack();
  test::in_mount_namespace([&] {
    if (!test::mount_small_disk(place("node"), "size=1m"))
      return test::kImpossible;
    use_machine("node");
    std::ofstream(place("node/fill")) << std::string(std::size_t{1} << 20U, ' ');
    const auto full = kiln_.run({"unpack", pack});
    EXPECT_EQ(full.status, 3) << full.text();
    EXPECT_EQ(std::ranges::count(full.err, '\n'), 3) << "not one for each object";
    EXPECT_THAT(full.out, HasSubstr("make room, and the same command again"));
    fs::remove(place("node/fill"));
    EXPECT_EQ(kiln_.json_of({"unpack", pack})["stored"], kObjects);
    return 0;
  });
}

TEST_F(ProgramPackTest, AJobHitsASeedAndNeedsNoNvrtcForIt) {
  const std::string pack = warm_and_pack();
  const json record = json::parse(
      read_text_file(kiln_.cache_dir() / "toolchains/recorded.json", 65536).value());
  use_machine("node");
  kiln_.set("KILN_SEED", pack);
  // Whatever NVRTC is here, the fake one is no longer: the seed alone knows of it.
  kiln_.unset("KILN_NVRTC");
  kiln_.set("KILN_TOOLCHAIN", record["nvrtc"].get<std::string>().substr(0, 8));
  kiln_.set("KILN_NO_JIT", "1");
  const json asked = kiln_.json_of(kWarm + Arguments{"--dry-run"});
  EXPECT_EQ(hits_of_tier(asked, "seed"), kObjects);
  EXPECT_FALSE(fs::exists(place("node"))) << "a dry run makes no root";
  const json report = kiln_.json_of(kWarm);
  EXPECT_EQ(report["hits"], kObjects);
  EXPECT_EQ(report["not_stored"], 0);
  EXPECT_EQ(hits_of_tier(report, "seed"), kObjects);
  kiln_.unset("KILN_SEED");
  EXPECT_EQ(hits_of_tier(kiln_.json_of(kWarm), "disk"), kObjects);
}

TEST_F(ProgramPackTest, SeveralSeedsAndARootAmongThem) {
  ASSERT_EQ(
      kiln_.run({"warm", "--template", "tiny_fwd:dtype=f16", "--arch", "9.0"}).status,
      0);
  const std::string root = kiln_.cache_dir();
  use_machine("other");
  const std::string pack = warm_and_pack();
  use_machine("node");
  const json report = kiln_.json_of(
      kWarm + Arguments{"--seed", place("none.kpack") + ":" + root + ":" + pack});
  EXPECT_EQ(hits_of_tier(report, "seed"), kObjects);
  const json counters = kiln_.json_of({"stats"})["counters"];
  EXPECT_EQ(counters["seed_hits"], kObjects);
  EXPECT_EQ(counters["seed_refused"], 1);
}

TEST_F(ProgramPackTest, DoctorStatsAndWhyKnowTheSeeds) {
  const std::string pack = warm_and_pack();
  fs::create_directories(place("node/objects"));
  use_machine("node");
  kiln_.set("KILN_SEED", pack + ":" + place("none.kpack"));
  const json stats = kiln_.json_of({"stats"});
  ASSERT_EQ(stats["seeds"].size(), 2U);
  EXPECT_EQ(stats["seeds"][0]["objects"], kObjects);
  EXPECT_EQ(stats["seeds"][1]["error"]["code"], "not_found");
  const json why = kiln_.json_of(
      {"why", "--template", "tiny_fwd:dtype=f16,wide=false", "--arch", "9.0"});
  EXPECT_EQ(why["same"], true);
  EXPECT_EQ(why["tier"], "seed");
  const std::string doctor = kiln_.run({"doctor"}).out;
  EXPECT_THAT(doctor, HasSubstr("job.kpack: 6 objects"));
  EXPECT_THAT(doctor, HasSubstr("none.kpack: not used"));
}

TEST_F(ProgramPackTest, DoctorAndStatsSayWhyASeedThatMustBeSignedIsRefused) {
  make_key("ours");
  const std::string pack = warm_and_pack();
  kiln_.set("KILN_SEED", pack + ";signed=1");
  const auto no_key = kiln_.run({"stats"});
  EXPECT_EQ(no_key.status, 2);
  EXPECT_THAT(no_key.err, HasSubstr("KILN_SEED: " + pack + ";signed=1: no key is"));
  kiln_.set("KILN_REMOTE_KEYS", place("ours.pub"));
  const std::string why = "job.kpack: it has no signature (signed=1)";
  const json seed = kiln_.json_of({"stats"})["seeds"][0];
  EXPECT_EQ(seed["error"]["code"], "untrusted");
  EXPECT_THAT(seed["error"]["message"].get<std::string>(), HasSubstr(why));
  EXPECT_THAT(kiln_.run({"doctor"}).out, HasSubstr("not used"));
  ASSERT_EQ(kiln_.run({"pack", "-o", pack, "--sign", place("ours")}).status, 0);
  use_machine("node");
  EXPECT_EQ(hits_of_tier(kiln_.json_of(kWarm), "seed"), kObjects);
}

TEST_F(ProgramPackTest, FiltersSelectWhatLsWouldList) {
  ASSERT_EQ(kiln_.run({"warm", "--all", "--template", "tiny_bwd", "--arch", "8.0,9.0"})
                .status,
            0);
  const json by_name =
      kiln_.json_of({"pack", "-o", place("a.kpack"), "--template", "tiny_bwd"});
  EXPECT_EQ(by_name["objects"],
            kiln_.json_of({"ls", "--template", "tiny_bwd"})["entries"].size());
  const json by_arch = kiln_.json_of({"pack", "-o", place("a.kpack"), "--arch", "8.0"});
  EXPECT_EQ(by_arch["objects"],
            kiln_.json_of({"ls", "--arch", "8.0"})["entries"].size());
}

TEST_F(ProgramPackTest, RequestsThatTheCacheLacksAreNamedAndTheRestIsPacked) {
  warm_and_pack();
  const std::string manifest = kiln_.write(
      "job.jsonl",
      R"({"template": "tiny_fwd", "params": {"dtype": "f16"}, "arch": "9.0"})"
      "\n"
      R"({"template": "tiny_bwd", "params": {"dtype": "f16"}, "arch": "9.0"})"
      "\n");
  const Arguments pack{"pack", "-o", place("b.kpack"), "--manifest", manifest};
  const json packed = kiln_.json_of(pack, 1);
  EXPECT_EQ(packed["objects"], 1);
  EXPECT_EQ(packed["missing"], 1);
  EXPECT_THAT(packed["problems"][0]["name"].get<std::string>(), HasSubstr("tiny_bwd"));
  EXPECT_EQ(kiln_.json_of({"pack", "-o", place("c.kpack"), "--template",
                           "tiny_fwd:dtype=f16", "--arch", "9.0"})["objects"],
            2);
}

TEST_F(ProgramPackTest, ADamagedObjectIsNotPacked) {
  warm_and_pack();
  const fs::path file = kiln_.object_files().front();
  fs::permissions(file, fs::perms(0644));
  fs::resize_file(file, 300);
  const json packed = kiln_.json_of({"pack", "-o", place("b.kpack")}, 1);
  EXPECT_EQ(packed["objects"], kObjects - 1);
  EXPECT_EQ(packed["failed"], 1);
}

TEST_F(ProgramPackTest, APackIsWrittenWholeOrNotAtAll) {
  const std::string pack = warm_and_pack();
  const Bytes before = bytes_of("job.kpack");
  const auto full =
      kiln_.run_in_shell("ulimit -f 2; exec kiln pack -o " + pack);  // blocks of 512 B
  EXPECT_EQ(full.status, 1) << full.text();
  EXPECT_EQ(bytes_of("job.kpack"), before);
  for (const auto& entry : fs::directory_iterator(kiln_.folder()))
    EXPECT_THAT(entry.path().filename().native(), Not(testing::StartsWith(".new-")));
}

TEST_F(ProgramPackTest, TheSameObjectsGiveTheSamePackButForItsHeader) {
  warm_and_pack();
  const auto behind_header = [](const Bytes& pack) {
    return Bytes(
        pack.begin() + static_cast<std::ptrdiff_t>(test::header_bytes_of(pack)),
        pack.begin() + static_cast<std::ptrdiff_t>(test::footer_of(pack)));
  };
  const Bytes first = bytes_of("job.kpack");
  kiln_.json_of({"pack", "-o", place("agn.kpack")});  // a name as long
  const Bytes second = bytes_of("agn.kpack");
  EXPECT_NE(second, first);
  EXPECT_EQ(behind_header(second), behind_header(first));
}

TEST_F(ProgramPackTest, AHeaderNamesThePackItsTimeSerialAndToolchain) {
  EXPECT_EQ(kiln_.json_of(kWarm)["compiled"], kObjects);
  const std::string pack = place("job.kpack");
  const auto header_of = [&](const Arguments& more = {}) {
    const json packed = kiln_.json_of(Arguments{"pack", "-o", pack} + more)["header"];
    EXPECT_EQ(kiln_.json_of({"unpack", pack, "--older"})["header"], packed);
    return packed;
  };
  const json first = header_of();
  EXPECT_EQ(first["name"], "job.kpack");
  EXPECT_THAT(first["created"].get<std::string>(), testing::EndsWith("Z"));
  ASSERT_EQ(first["toolchains"].size(), 1U);
  const json record = json::parse(
      read_text_file(kiln_.cache_dir() / "toolchains/recorded.json", 65536).value());
  EXPECT_THAT(
      first["toolchains"][0].get<std::string>(),
      AllOf(testing::StartsWith("nvrtc-13.0-"),
            testing::EndsWith(fmt::format(" {}+{}", record["nvrtc"].get<std::string>(),
                                          record["builtins"].get<std::string>()))));
  EXPECT_GT(header_of()["serial"], first["serial"]) << "the default grows";
  EXPECT_EQ(header_of({"--serial", "17"})["serial"], 17);
  for (const char* wrong : {"0", "-1", "x", "9223372036854775808"})
    EXPECT_EQ(kiln_.run({"pack", "-o", pack, "--serial", wrong}).status, 2) << wrong;
  EXPECT_THAT(kiln_.run({"unpack", pack}).out,
              AllOf(HasSubstr("written as job.kpack at 20"), HasSubstr("serial 17")));
  kiln_.set("KILN_SEED", pack);
  EXPECT_THAT(kiln_.run({"doctor"}).out, HasSubstr("written as job.kpack at 20"));
  EXPECT_EQ(kiln_.json_of({"stats"})["seeds"][0]["header"]["serial"], 17);
}

TEST_F(ProgramPackTest, LtoIrOfAnySizeIsPackedAndUnpacked) {
  kiln_.unset("KILN_NVRTC");
  std::string source = "extern \"C\" __global__ void k(float* x) {\n";
  for (int i = 0; i < 1500; ++i)
    source += fmt::format("  x[{}] = x[{}] * {}.0f + sinf(x[{}]);\n", i, i + 1, i, i);
  const Arguments large{"compile", kiln_.write("large.cu", source + "}\n"), "--arch",
                        "lto_90"};
  const Arguments small{"compile", kiln_.write("small.cu", test::kTinySource), "--arch",
                        "lto_90"};
  if (kiln_.run(small).status == 3)
    GTEST_SKIP() << "THERE IS NO NVRTC HERE: LTO-IR was not packed";
  ASSERT_EQ(kiln_.json_of(large)["compiled"], 1);
  std::uintmax_t largest = 0;
  for (const fs::path& file : kiln_.object_files())
    largest = std::max(largest, fs::file_size(file));
  EXPECT_GT(largest, 65536U) << "more than the record of a toolchain may have";
  const std::string pack = place("job.kpack");
  ASSERT_EQ(kiln_.json_of({"pack", "-o", pack})["objects"], 2);
  use_machine("node");
  kiln_.set("KILN_NO_JIT", "1");
  for (const Arguments& each : {small, large})
    EXPECT_EQ(hits_of_tier(kiln_.json_of(each + Arguments{"--seed", pack}), "seed"), 1);
  use_machine("other");
  EXPECT_EQ(kiln_.json_of({"unpack", pack})["stored"], 2);
  for (const Arguments& each : {small, large})
    EXPECT_EQ(hits_of_tier(kiln_.json_of(each), "disk"), 1);
  EXPECT_EQ(kiln_.run({"verify"}).status, 0);
}

TEST_F(ProgramPackTest, ABadRowCostsThatRowAndIsNamed) {
  const std::string pack = warm_and_pack();
  Bytes lying = bytes_of("job.kpack");
  std::size_t row = test::row_of(lying, 0);
  if (load_le<std::uint32_t>(lying, row + 80) == 4)  // the toolchain's record
    row = test::row_of(lying, 1);
  const std::string key = Digest(ByteView(lying).subspan(row).first<32>()).hex();
  test::store_le(lying, row + 32, std::uint64_t{1} << 40U);
  test::repair_pack(lying);
  test::write_bytes(pack, lying);
  use_machine("node");
  const json unpacked = kiln_.json_of({"unpack", pack}, 1);
  EXPECT_EQ(unpacked["stored"], kObjects - 1);
  EXPECT_EQ(unpacked["failed"], 1);
  EXPECT_EQ(unpacked["problems"][0]["key"], key);
  test::store_le(lying, row + 32, std::uint64_t{0});
  test::store_le(lying, row + 80, std::uint32_t{999});  // of a later version
  test::repair_pack(lying);
  test::write_bytes(pack, lying);
  const json skipped = kiln_.json_of({"unpack", pack});
  EXPECT_EQ(skipped["already_there"], kObjects - 1);
  EXPECT_EQ(skipped["skipped"], 1);
  EXPECT_THAT(kiln_.run({"unpack", pack}).out,
              HasSubstr(", 1 skipped, of a kind that a later"));
}

TEST_F(ProgramPackTest, ACompressedPackIsUnpacked) {
  warm_and_pack();
  const json packed = kiln_.json_of({"pack", "-o", place("job.kpack.zst")});
  EXPECT_EQ(packed["bytes"], fs::file_size(place("job.kpack.zst")));
  EXPECT_LT(packed["bytes"].get<std::uint64_t>(), fs::file_size(place("job.kpack")));
  use_machine("node");
  EXPECT_EQ(kiln_.json_of({"unpack", place("job.kpack.zst")})["stored"], kObjects);
  Bytes cut = bytes_of("job.kpack.zst");
  cut.resize(cut.size() - 5);
  test::write_bytes(place("cut.kpack.zst"), cut);
  EXPECT_EQ(kiln_.run({"unpack", place("cut.kpack.zst")}).status, 1);
}

TEST_F(ProgramPackTest, ABombIsGivenUpAtItsFirstBytesOrAtTheLimitOfItsGrowth) {
  std::string zeros(std::size_t{256} << 20U, '\0');
  const auto unpack = [&](const std::string& limit) {
    std::string bomb(ZSTD_compressBound(zeros.size()), '\0');
    bomb.resize(ZSTD_compress(bomb.data(), bomb.size(), zeros.data(), zeros.size(), 1));
    test::write_bytes(place("bomb.kpack.zst"), as_bytes(bomb));
    const auto refused =
        kiln_.run_in_shell(limit + "exec kiln unpack " + place("bomb.kpack.zst"));
    EXPECT_EQ(refused.status, 1);
    return refused.err;
  };
  EXPECT_THAT(unpack("ulimit -f 8; "), HasSubstr("does not begin as a pack does"))
      << "nothing of it is written";
  zeros.replace(0, 8, "KILNPACK");
  EXPECT_THAT(unpack(""), HasSubstr("decompresses to more"));
}

TEST_F(ProgramPackTest, WhatIsNoPackIsAnErrorThatNamesIt) {
  kiln_.write("text.kpack", "no pack\n");
  const auto text = kiln_.run({"unpack", place("text.kpack")});
  EXPECT_EQ(text.status, 2);
  EXPECT_THAT(text.err, HasSubstr("text.kpack is no pack"));
  EXPECT_EQ(kiln_.run({"unpack", place("none.kpack")}).status, 2);
  EXPECT_EQ(kiln_.run({"pack"}).status, 2);
  EXPECT_EQ(kiln_.run({"pack", "-o", place("")}).status, 2);
  EXPECT_EQ(kiln_.run({"key", "newer", "x"}).status, 2);
  EXPECT_FALSE(fs::exists(kiln_.cache_dir()));
}

TEST_F(ProgramPackTest, AKeyPairIsMadeOnceAndThePrivateKeyIsForItsOwnerAlone) {
  make_key("sign.key");
  struct stat info {};
  ASSERT_EQ(::stat(place("sign.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777U, 0600U);
  EXPECT_EQ(kiln_.run({"key", "new", place("sign.key")}).status, 2);
  const json shown = kiln_.json_of({"key", "show", place("sign.key")});
  EXPECT_EQ(shown, kiln_.json_of({"key", "show", place("sign.key.pub")}));
  const std::string text = kiln_.run({"key", "show", place("sign.key")}).out;
  EXPECT_EQ(text, read_text_file(place("sign.key.pub"), 4096).value());
  EXPECT_THAT(text, Not(HasSubstr("PRIVATE")));
}

TEST_F(ProgramPackTest, WithTrustedKeysOnlyWhatTheySignedIsUnpacked) {
  make_key("ours");
  make_key("theirs");
  const std::string pack = warm_and_pack({"--sign", place("ours")});
  use_machine("node");
  EXPECT_EQ(kiln_.run({"unpack", pack, "--keys", place("theirs.pub")}).status, 1);
  EXPECT_FALSE(fs::exists(place("node")));
  const json unpacked = kiln_.json_of({"unpack", pack, "--keys", place("ours.pub")});
  EXPECT_EQ(unpacked["stored"], kObjects);
  EXPECT_EQ(unpacked["signed_by"].size(), 1U);
  kiln_.set("KILN_CACHE_DIR", kiln_.cache_dir());
  ASSERT_EQ(kiln_.run({"pack", "-o", pack}).status, 0);
  EXPECT_FALSE(fs::exists(pack + ".minisig")) << "it was of the pack before";
  kiln_.set("KILN_REMOTE_KEYS", place("ours.pub"));
  const auto unsigned_one = kiln_.run({"unpack", pack});
  EXPECT_EQ(unsigned_one.status, 1);
  EXPECT_THAT(unsigned_one.err, HasSubstr("no signature"));
}

TEST_F(ProgramPackTest, ACommandMaySignInThePlaceOfAKeyFile) {
  make_key("ours");
  make_key("theirs");
  const std::string openssl =
      fmt::format("cat > {0} && openssl pkeyutl -sign -inkey {1} -rawin -in {0}",
                  place("message"), place("ours"));
  if (kiln_.run_in_shell("command -v openssl").status != 0)
    GTEST_SKIP() << "THERE IS NO openssl PROGRAM: --signer was not tried with it";
  const std::string pack =
      warm_and_pack({"--signer", openssl, "--keys", place("ours.pub")});
  use_machine("node");
  EXPECT_EQ(kiln_.json_of({"unpack", pack, "--keys", place("ours.pub")})["stored"],
            kObjects);
  const Arguments again{"pack", "-o", pack, "--keys"};
  kiln_.set("KILN_CACHE_DIR", kiln_.cache_dir());
  EXPECT_EQ(
      kiln_.run(again + Arguments{place("theirs.pub"), "--signer", openssl}).status, 2);
  for (const char* const wrong : {"exit 7", "echo no signature", "kill -9 $$", "yes"}) {
    const auto failed =
        kiln_.run(again + Arguments{place("ours.pub"), "--signer", wrong});
    EXPECT_EQ(failed.status, 3) << failed.text();
  }
  EXPECT_EQ(kiln_.json_of({"unpack", pack, "--keys", place("ours.pub")})["failed"], 0)
      << "the pack is as it was";
}

TEST_F(ProgramPackTest, MinisignChecksOurSignaturesAndWeCheckMinisigns) {
  if (kiln_.run_in_shell("command -v minisign").status != 0)
    GTEST_SKIP() << "THERE IS NO minisign HERE: our signatures were not shown to it";
  make_key("ours");
  const std::string pack = warm_and_pack({"--sign", place("ours")});
  kiln_.json_of({"pack", "-o", pack + ".zst", "--sign", place("ours")});
  for (const std::string& file : {pack, pack + ".zst"}) {
    const auto checked = kiln_.run_in_shell(
        fmt::format("minisign -Vm {} -p {}", file, place("ours.pub")));
    EXPECT_EQ(checked.status, 0) << checked.text();
  }
  // A pack without a signature of its own, signed as any file is.
  const std::string plain = place("plain.kpack");
  kiln_.json_of({"pack", "-o", plain});
  const auto signed_by_minisign = kiln_.run_in_shell(
      fmt::format("cd {} && minisign -GW -p m.pub -s m.key && minisign -Sm plain.kpack "
                  "-s m.key",
                  kiln_.folder().native()));
  ASSERT_EQ(signed_by_minisign.status, 0) << signed_by_minisign.text();
  use_machine("node");
  EXPECT_EQ(kiln_.run({"unpack", plain, "--keys", place("ours.pub")}).status, 1);
  EXPECT_EQ(kiln_.json_of({"unpack", plain, "--keys", place("m.pub")})["stored"],
            kObjects);
  std::fstream(plain, std::ios::in | std::ios::out).seekp(200).write("x", 1);
  EXPECT_EQ(kiln_.run({"unpack", plain, "--keys", place("m.pub")}).status, 1);
}

TEST_F(ProgramPackTest, APackThatAnybodyCanWriteIsNotUnpacked) {
  const std::string pack = warm_and_pack();
  fs::permissions(pack, fs::perms(0666));
  use_machine("node");
  EXPECT_EQ(kiln_.run({"unpack", pack}).status, 1);
  const json report = kiln_.json_of(kWarm + Arguments{"--seed", pack});
  EXPECT_EQ(report["compiled"], kObjects) << "a seed is trusted like a root";
}

}  // namespace
}  // namespace kiln
