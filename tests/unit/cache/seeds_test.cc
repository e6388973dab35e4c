#include "cache/seeds.h"

#include <cerrno>
#include <fstream>
#include <utility>

#include "cache/cache.h"
#include "cache/seed_place.h"
#include "codec/private_key.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"
#include "tests/support/paths.h"
#include "tests/support/sample_pack.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "tests/support/trusted_keys.h"
#include "util/log.h"
#include "util/read_file.h"

namespace kiln::cache {
namespace {

using test::pack_of;
using test::sample_objects;
using test::SampleObject;
using test::write_bytes;

class SeedsTest : public testing::Test {
 protected:
  SeedsTest() { write_bytes(pack_, whole_); }

  std::unique_ptr<Cache> open(std::vector<fs::path> seeds, fs::path root) {
    CacheOptions options;
    options.root = std::move(root);
    options.persistent_dir = dir_.path() / "persistent";
    options.file_system = &files_;
    options.seeds = std::move(seeds);
    options.keys = keys_;
    options.payload_check = check_;
    return Cache::open(std::move(options));
  }
  std::unique_ptr<Cache> open(std::vector<fs::path> seeds) {
    return open(std::move(seeds), root_);
  }
  std::unique_ptr<Cache> open() { return open({pack_}); }

  /// A root with the sample objects from `first` to `last`, and a toolchain's record.
  fs::path make_root(const std::string& name, int first, int last) {
    const fs::path root = dir_.path() / name;
    const auto cache = open({}, root);
    for (int i = first; i <= last; ++i)
      std::ignore = cache->publish(objects_[static_cast<std::size_t>(i)]);
    fs::create_directory(root / "toolchains");
    std::ofstream(root / "toolchains" / "recorded.json") << "of " << name;
    return root;
  }

  const test::TempDir dir_;
  test::FaultyFileSystem files_;
  const fs::path root_ = dir_.path() / "root";
  fs::path pack_ = dir_.path() / "job.kpack";
  fs::path keys_;
  PayloadCheck check_;
  const std::vector<StoredObject> objects_ = sample_objects(5);
  const Bytes whole_ = pack_of(objects_);
  const Digest key_ = objects_[3].key();
};

TEST_F(SeedsTest, WhatARootLacksIsFoundInAPackAndPublished) {
  const auto cache = open();
  Tier tier = Tier::kBuild;
  const auto found = cache->find(key_, "sm_90a", &tier);
  ASSERT_TRUE(found);
  EXPECT_EQ(tier, Tier::kSeed);
  EXPECT_TRUE(std::ranges::equal(found->file(), objects_[3].file()));
  EXPECT_TRUE(cache->find(key_, "sm_90a", &tier));
  EXPECT_EQ(tier, Tier::kDisk);
  EXPECT_TRUE(open({})->find(key_)) << "the root has it now";
  const auto counts = cache->counters().snapshot();
  EXPECT_EQ(counts.at("hits"), 2U);
  EXPECT_EQ(counts.at("seed_hits"), 1U);
  EXPECT_EQ(counts.at("published"), 1U);
  EXPECT_FALSE(counts.contains("misses"));
}

TEST_F(SeedsTest, NothingIsOpenedBeforeAMiss) {
  std::ignore = open({})->publish(objects_[3]);
  const auto cache = open({dir_.path() / "none"});
  EXPECT_TRUE(cache->find(key_));
  EXPECT_FALSE(cache->counters().snapshot().contains("seed_refused"));
  EXPECT_FALSE(cache->find(objects_[2].key()));
  EXPECT_FALSE(cache->find(objects_[2].key()));
  EXPECT_EQ(cache->counters().snapshot().at("seed_refused"), 1U) << "said once";
}

TEST_F(SeedsTest, ARootIsASeedAndStaysAsItIs) {
  const fs::path other = make_root("other", 3, 3);
  const auto stamp = fs::file_time_type::clock::now() - std::chrono::hours(5);
  fs::last_write_time(Layout(other).object(key_), stamp);
  const auto cache = open({other});
  Tier tier = Tier::kBuild;
  EXPECT_TRUE(cache->find(key_, {}, &tier));
  EXPECT_EQ(tier, Tier::kSeed);
  EXPECT_EQ(fs::last_write_time(Layout(other).object(key_)), stamp);
  EXPECT_FALSE(cache->find(objects_[2].key()));
}

TEST_F(SeedsTest, TheFirstSeedThatHasASoundObjectGivesIt) {
  const fs::path other = make_root("other", 0, 4);
  const std::string file = Layout(other).object(key_);
  fs::permissions(file, fs::perms(0644));
  fs::resize_file(file, 400);
  const auto cache = open({dir_.path() / "none", other, pack_});
  EXPECT_TRUE(cache->find(key_));
  EXPECT_EQ(cache->counters().snapshot().at("seed_hits"), 1U);
  EXPECT_TRUE(fs::exists(file)) << "nobody moves what is in a seed";
}

TEST_F(SeedsTest, ServesWithoutARootAndWithAReadOnlyOne) {
  EXPECT_TRUE(open({pack_}, "")->find(key_));
  files_.fail("writable", EROFS);
  const auto cache = open();
  EXPECT_EQ(cache->mode(), Mode::kReadOnly);
  Tier tier = Tier::kBuild;
  EXPECT_TRUE(cache->find(key_, {}, &tier));
  EXPECT_TRUE(cache->find(key_, {}, &tier));
  EXPECT_EQ(tier, Tier::kSeed);
}

TEST_F(SeedsTest, AFullDiskLosesNoHit) {
  const auto cache = open();
  files_.fail("write", ENOSPC);
  EXPECT_TRUE(cache->find(key_));
  EXPECT_EQ(cache->counters().snapshot().at("publish_refused.ENOSPC"), 1U);
}

TEST_F(SeedsTest, AnObjectForAnotherTargetOrWithAWrongPayloadIsAMiss) {
  const auto cache = open();
  EXPECT_FALSE(cache->find(key_, "sm_80"));
  EXPECT_EQ(cache->counters().snapshot().at("corrupt.target"), 1U);
  check_ = [](const StoredObject&) -> Result<void> {
    return fail(ErrorCode::kCorrupt, "for another architecture");
  };
  const auto checking = open();
  EXPECT_FALSE(checking->find(key_, "sm_90a"));
  EXPECT_EQ(checking->counters().snapshot().at("corrupt.payload"), 1U);
}

TEST_F(SeedsTest, AnObjectOfEveryKindIsServed) {
  const auto objects = test::objects_of_every_kind();
  write_bytes(pack_, pack_of(objects));
  const auto cache = open();
  for (const StoredObject& object : objects) {
    Tier tier = Tier::kBuild;
    const auto found = cache->find(object.key(), "sm_90a", &tier);
    ASSERT_TRUE(found) << to_string(object.kind());
    EXPECT_EQ(tier, Tier::kSeed);
    EXPECT_EQ(found->kind(), object.kind());
  }
  EXPECT_EQ(cache->seeds()->states().at(0).header, test::sample_header());
}

TEST_F(SeedsTest, ABadRowIsCountedAndNamedAndTheOthersAreServed) {
  Bytes lying = whole_;
  std::size_t row = 0;
  while (Digest(ByteView(lying).subspan(test::row_of(lying, row)).first<32>()) != key_)
    ++row;
  test::store_le(lying, test::row_of(lying, row) + 32, std::uint64_t{1} << 40U);
  test::repair_pack(lying);
  write_bytes(pack_, lying);
  std::vector<std::string> said;
  log_to([&](LogLevel, const std::string& line) { said.push_back(line); });
  const auto cache = open();
  EXPECT_FALSE(cache->find(key_));
  EXPECT_TRUE(cache->find(objects_[2].key()));
  log_to({});
  EXPECT_THAT(said, testing::ElementsAre(testing::AllOf(
                        testing::HasSubstr(pack_.native()),
                        testing::HasSubstr(key_.hex() + ": its row in the index"))));
  EXPECT_EQ(cache->counters().get(Counter::kSeedRefused), 1U);
  EXPECT_EQ(cache->seeds()->states().at(0).bad_rows, 1U);
}

TEST_F(SeedsTest, AnIoErrorInOneObjectIsAMissOfThatObject) {
  files_.on_type = [](std::string_view) { return std::int64_t{0x73717368}; };
  const auto cache = open();
  EXPECT_FALSE(cache->find(Digest::of(as_bytes("another")))) << "it is open now";
  bool fails = true;
  files_.before = [&](std::string_view call, int) {
    return call == "pread" && std::exchange(fails, false) ? -EIO : 0;
  };
  EXPECT_FALSE(cache->find(key_));
  EXPECT_TRUE(cache->find(objects_[2].key()));
}

TEST_F(SeedsTest, OneThatIsCutMissesAndIsCounted) {
  fs::resize_file(pack_, whole_.size() - 100);
  const auto cache = open();
  EXPECT_FALSE(cache->find(key_));
  EXPECT_EQ(cache->counters().snapshot().at("seed_refused"), 1U);
  EXPECT_EQ(cache->seeds()->states().at(0).error->code, ErrorCode::kCorrupt);
}

TEST_F(SeedsTest, OneThatIsCutWhileOpenMissesAndKillsNobody) {
  const auto cache = open();
  EXPECT_TRUE(cache->find(key_));
  fs::resize_file(pack_, 100);
  EXPECT_FALSE(cache->find(objects_[2].key()));
  EXPECT_EQ(cache->counters().snapshot().at("corrupt.size"), 1U);
  EXPECT_TRUE(cache->find(key_)) << "which the root has";
}

TEST_F(SeedsTest, OneThatAnotherUserCanWriteIsUntrusted) {
  fs::permissions(pack_, fs::perms(0666));
  const fs::path other = make_root("other", 0, 4);
  fs::permissions(other, fs::perms(0777));
  const auto cache = open({pack_, other});
  EXPECT_FALSE(cache->find(key_));
  EXPECT_EQ(cache->counters().get(Counter::kUntrusted), 2U);
}

TEST_F(SeedsTest, ACompressedPackIsRefusedWithTheRemedy) {
  fs::copy(pack_, dir_.path() / "job.kpack.zst");
  const auto cache = open({dir_.path() / "job.kpack.zst"});
  EXPECT_FALSE(cache->find(key_));
  EXPECT_THAT(cache->seeds()->states().at(0).error->message,
              testing::HasSubstr("zstd -d"));
}

TEST_F(SeedsTest, ASignedPackNeedsATrustedKeyWhereSomeAreGiven) {
  const PrivateKey ours = PrivateKey::generate().value();
  const Signer signer = ours.signer();
  write_bytes(pack_, pack_of(objects_, std::span(&signer, 1)));
  keys_ = dir_.path() / "trusted.pub";
  std::ofstream(keys_) << to_text(ours.public_key());
  fs::permissions(keys_, fs::perms(0644));
  EXPECT_TRUE(open()->find(key_));
  fs::remove_all(root_);
  std::ofstream(keys_) << to_text(PrivateKey::generate().value().public_key());
  EXPECT_FALSE(open()->find(key_));
  std::ofstream(keys_) << to_text(ours.public_key());
  fs::permissions(keys_, fs::perms(0666));
  EXPECT_FALSE(open()->find(key_)) << "anybody may have added a key";
}

TEST_F(SeedsTest, WithSigned1APackWhoseSignatureWasStrippedIsRefusedWithTheReason) {
  const PrivateKey ours = PrivateKey::generate().value();
  const Signer signer = ours.signer();
  keys_ = dir_.path() / "trusted.pub";
  std::ofstream(keys_) << to_text(ours.public_key());
  fs::permissions(keys_, fs::perms(0644));
  const auto error_of = [&](std::string_view options) {
    return open({pack_.native() + std::string(options)})->seeds()->states().at(0).error;
  };
  EXPECT_FALSE(error_of("")) << "trusted by its owner";
  const auto stripped = error_of(";signed=1");
  ASSERT_TRUE(stripped);
  EXPECT_EQ(stripped->code, ErrorCode::kUntrusted);
  EXPECT_EQ(stripped->message, pack_.native() + ": it has no signature (signed=1)");
  const auto cache = open({pack_.native() + ";signed=1"});
  EXPECT_FALSE(cache->find(key_));
  EXPECT_EQ(cache->counters().get(Counter::kUntrusted), 1U);
  write_bytes(pack_, pack_of(objects_, std::span(&signer, 1)));
  EXPECT_FALSE(error_of(";signed=1"));
  EXPECT_TRUE(open({pack_.native() + ";signed=1"})->find(key_));
  std::ofstream(keys_) << to_text(PrivateKey::generate().value().public_key());
  EXPECT_TRUE(error_of(";signed=1"));
  keys_.clear();
  EXPECT_TRUE(error_of(";signed=1")) << "nobody is trusted";
}

class SignedSeedTest : public SeedsTest {
 protected:
  SignedSeedTest() {
    keys_ = dir_.path() / "trusted.pub";
    trust(to_text(ours_.public_key()));
    const Signer signer = ours_.signer();
    write_bytes(pack_, pack_of(objects_, std::span(&signer, 1)));
  }
  void trust(const std::string& text) { test::replace_keys(keys_, text); }
  std::shared_ptr<KeyFile> key_file() {
    return std::make_shared<KeyFile>(files_, TrustPolicy::of_this_process({}), keys_,
                                     [this] { return now_; });
  }
  std::unique_ptr<Seeds> seeds(const std::string& options = "") {
    return std::make_unique<Seeds>(
        SeedOptions{.places = {pack_.native() + options}, .keys = key_file()}, files_,
        TrustPolicy::of_this_process({}), counters_);
  }
  void let_pass() { now_ += KeyFile::kPause; }

  const PrivateKey ours_ = PrivateKey::generate().value();
  const std::shared_ptr<Counters> counters_ = std::make_shared<Counters>();
  KeyFile::Clock::time_point now_{};
};

TEST_F(SignedSeedTest, WhoSignedWhatComesFromItIsRemembered) {
  const auto cache = open({pack_});
  const auto found = cache->find(key_);
  ASSERT_TRUE(found);
  std::ignore = cache->publish(objects_[0]);
  auto entries = cache->walk({}, Damaged::kLeaveOut).value();
  cache->add_signers(entries);
  ASSERT_EQ(entries.size(), 2U);
  for (const Entry& entry : entries) {
    const std::vector<SignedBy> ours{
        {ours_.public_key().id, "job.kpack@17", found->payload_digest()}};
    EXPECT_EQ(entry.signed_by, entry.key == key_ ? ours : std::vector<SignedBy>());
  }
  write_bytes(pack_, whole_);
  const auto without = open({pack_}, dir_.path() / "without");
  ASSERT_TRUE(without->find(key_)) << "trusted by its owner";
  EXPECT_TRUE(without->list({.signers = {ours_.public_key().id}}).value().empty());
}

TEST_F(SignedSeedTest, AKeyThatIsRemovedWhileItRunsIsRefusedAndTakenAgainWhenItIsBack) {
  const auto open = seeds();
  EXPECT_TRUE(open->find(key_, {}));
  for (const std::string& text :
       {to_text(PrivateKey::generate()->public_key()),
        to_text(ours_.public_key()) + "revoked key " + key_name(ours_.public_key().id),
        std::string("no keys")}) {
    trust(text);
    let_pass();
    EXPECT_FALSE(open->find(key_, {})) << text;
    EXPECT_TRUE(open->states().at(0).error);
    EXPECT_TRUE(open->toolchains(SeedPlaces::kAll).empty());
    trust(to_text(ours_.public_key()));
    let_pass();
    EXPECT_TRUE(open->find(key_, {}));
    EXPECT_FALSE(open->states().at(0).error);
  }
}

TEST_F(SignedSeedTest, ARevokedObjectIsNotUsedAndTheOthersAre) {
  trust(to_text(ours_.public_key()) + "revoked object " + key_.hex() + "\n");
  EXPECT_FALSE(seeds()->find(key_, {}));
  EXPECT_TRUE(seeds()->find(objects_[2].key(), {}));
  write_bytes(pack_, whole_);
  EXPECT_FALSE(seeds()->find(key_, {}))
      << "nor from a pack that its owner is trusted for";
  pack_ = make_root("other", 0, 4);
  EXPECT_FALSE(seeds()->find(key_, {})) << "nor from a folder";
  EXPECT_TRUE(seeds()->find(objects_[2].key(), {}));
}

TEST_F(SignedSeedTest, AKeyForOtherNamesOrOneOfTwoSignaturesIsNotEnough) {
  trust(test::line_of(ours_.public_key(), "packs=j?b"));
  EXPECT_TRUE(seeds(";signed=1")->find(key_, {}));
  trust(test::line_of(ours_.public_key(), "packs=jab"));
  EXPECT_FALSE(seeds()->find(key_, {}));
  const PrivateKey theirs = PrivateKey::generate().value();
  trust(to_text(ours_.public_key()) + to_text(theirs.public_key()) + "signatures 2\n");
  EXPECT_FALSE(seeds()->find(key_, {}));
  const std::vector<Signer> both{theirs.signer(), ours_.signer()};
  write_bytes(pack_, pack_of(objects_, both));
  Origin origin;
  ASSERT_TRUE(seeds()->find(key_, {}, &origin));
  EXPECT_EQ(origin.signers.size(), 2U);
}

TEST_F(SignedSeedTest, APackOfVersionOneHasNoNameAndIsNotTheOneThatIsAskedFor) {
  // Its bytes are those of an older Kiln, so its signature is made behind them.
  Bytes bytes =
      *read_file(test::paths::source("tests/unit/cache/golden/pack_v1.bin"), 1U << 20U)
           .value();
  const auto digest = Blake2bHasher::of(ByteView(bytes).last(64)).value();
  const Signature signature{ours_.public_key().id, ours_.signer().sign(digest).value()};
  append(bytes, encode_signatures(std::span(&signature, 1)));
  write_bytes(pack_, bytes);
  EXPECT_FALSE(seeds()->states().at(0).error);
  const auto error = seeds(";signed=1")->states().at(0).error;
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, testing::HasSubstr("the pack has no name"));
}

TEST_F(SeedsTest, AFolderHasNeitherSignatureNorSerialAndIsRefusedWhereOneIsWanted) {
  const fs::path other = make_root("other", 0, 4);
  for (const char* const options : {";signed=1", ";min_serial=1", ";older=refuse"}) {
    const auto cache = open({other.native() + options});
    EXPECT_FALSE(cache->find(key_)) << options;
    const SeedState state = cache->seeds()->states().at(0);
    EXPECT_EQ(state.path, other);
    EXPECT_THAT(state.error->message, testing::HasSubstr("is a folder: signed=1, min"));
  }
  EXPECT_TRUE(open({other.native() + ";signed=0;;min_serial=0"})->find(key_));
}

TEST_F(SeedsTest, APackThatIsOlderThanMinSerialIsRefused) {
  EXPECT_TRUE(open({pack_.native() + ";min_serial=17"})->find(key_));
  fs::remove_all(root_);
  const auto cache = open({pack_.native() + ";min_serial=18"});
  EXPECT_FALSE(cache->find(key_));
  EXPECT_THAT(cache->seeds()->states().at(0).error->message,
              testing::HasSubstr("its serial is 17, and min_serial=18"));
}

TEST_F(SeedsTest, OptionsOfASeedAreReadAndUnknownOnesNamed) {
  EXPECT_EQ(parse_seed("/a b.kpack;signed=1;min_serial=9223372036854775807").value(),
            (SeedPlace{"/a b.kpack", true, 9223372036854775807U}));
  EXPECT_TRUE(parse_seed("/a.kpack;older=refuse")->refuses_older);
  EXPECT_EQ(parse_seed("/a.kpack;older=warn").value(), SeedPlace{"/a.kpack"});
  EXPECT_EQ(parse_seed("/a.kpack").value(), SeedPlace{"/a.kpack"});
  for (const auto& [text, why] :
       {std::pair{"/a;sined=1",
                  "/a;sined: there is no option 'sined', did you mean "
                  "'signed'?"},
        {"/a;signed=1;signed=1", "/a;signed: it is given twice"},
        {"/a;signed", "/a;signed: '' is not"},
        {"/a;signed=yes", "/a;signed: 'yes' is not"},
        {"/a;older=no", "/a;older: "},
        {"/a;min_serial=-1", "/a;min_serial: '-1' is not"},
        {"/a;min_serial=9223372036854775808", "/a;min_serial: '9223372036854775808'"}})
    EXPECT_THAT(parse_seed(text),
                test::IsError(ErrorCode::kInvalidArgument, testing::HasSubstr(why)));
  const auto cache = open({pack_.native() + ";sined=1"});
  EXPECT_FALSE(cache->find(key_)) << "whoever did not check it first";
}

TEST_F(SeedsTest, TheirToolchainsAreKnown) {
  const fs::path other = make_root("other", 0, 0);
  EXPECT_THAT(
      open({pack_, other, dir_.path() / "none"})->seeds()->toolchains(SeedPlaces::kAll),
      testing::ElementsAre(test::kSampleRecord, "of other"));
}

// A plan that this cuDNN does not load is removed, and built.
TEST_F(SeedsTest, WhatIsRemovedDoesNotComeBackFromASeed) {
  const auto cache = open();
  EXPECT_TRUE(cache->find(key_));
  ASSERT_TRUE(cache->remove(key_));
  EXPECT_FALSE(cache->find(key_));
  EXPECT_TRUE(cache->find(objects_[2].key()));
}

TEST_F(SeedsTest, ManyThreadsFindAtOnce) {
  const auto cache = open();
  std::atomic<int> found{0};
  test::in_threads(8, [&] {
    for (const StoredObject& object : objects_)
      found += cache->find(object.key()) ? 1 : 0;
  });
  EXPECT_EQ(found, 40);
}

TEST_F(SeedsTest, InspectLooksThereToo) {
  const auto cache = open();
  Tier tier = Tier::kBuild;
  EXPECT_TRUE(*cache->inspect(key_, &tier));
  EXPECT_EQ(tier, Tier::kSeed);
  EXPECT_FALSE(fs::exists(cache->layout().object(key_)));
}

}  // namespace
}  // namespace kiln::cache
