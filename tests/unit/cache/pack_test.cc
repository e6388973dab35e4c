#include "cache/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "codec/private_key.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/paths.h"
#include "tests/support/sample_pack.h"
#include "tests/support/temp_dir.h"
#include "util/read_file.h"

namespace kiln::cache {
namespace {

namespace fs = std::filesystem;
using test::footer_of;
using test::pack_of;
using test::repair_pack;
using test::row_of;
using test::sample_objects;
using test::store_le;
using test::write_bytes;

class PackTest : public testing::Test {
 protected:
  Result<std::unique_ptr<const Pack>> open(ByteView bytes,
                                           std::span<const PublicKey> keys = {},
                                           bool needs_signature = false) {
    write_bytes(path_, bytes);
    return reopen(keys, needs_signature);
  }
  Result<std::unique_ptr<const Pack>> reopen(std::span<const PublicKey> keys = {},
                                             bool needs_signature = false) {
    return Pack::open(path_, {.file_system = files_,
                              .trust = trust_,
                              .keys = keys,
                              .needs_signature = needs_signature});
  }
  std::optional<ErrorCode> refusal(ByteView bytes, std::span<const PublicKey> keys = {},
                                   bool needs_signature = false) {
    const auto opened = open(bytes, keys, needs_signature);
    return opened ? std::nullopt : std::optional(opened.error().code);
  }

  const test::TempDir dir_;
  const fs::path path_ = dir_.path() / "job.kpack";
  test::FaultyFileSystem files_;
  const TrustPolicy trust_ = TrustPolicy::of_this_process({});
  const std::vector<StoredObject> objects_ = sample_objects(5);
  const Bytes whole_ = pack_of(objects_);
  const PrivateKey ours_ = PrivateKey::generate().value();
  const PrivateKey theirs_ = PrivateKey::generate().value();
  const std::vector<PublicKey> trusted_{ours_.public_key()};
};

TEST_F(PackTest, HasWhatWasPutIntoIt) {
  const auto pack = open(whole_).value();
  EXPECT_EQ(pack->object_count(), objects_.size());
  EXPECT_EQ(pack->producer(), "kiln 0.2.0");
  EXPECT_THAT(pack->toolchains(), testing::ElementsAre(test::kSampleRecord));
  for (const StoredObject& object : objects_) {
    const auto row = pack->find(object.key());
    ASSERT_TRUE(row);
    EXPECT_EQ(row->offset % 64, 0U);
    const auto read = pack->read(*row);
    ASSERT_TRUE(read) << read.error().detail;
    EXPECT_TRUE(std::ranges::equal(read->file(), object.file()));
  }
  EXPECT_FALSE(pack->find(Digest::of(as_bytes("another"))));
  EXPECT_FALSE(pack->find(Digest::of(as_bytes(test::kSampleRecord)))) << "no object";
}

TEST_F(PackTest, AnEmptyOneIsWhole) {
  const auto pack = open(pack_of({}, {}, "")).value();
  EXPECT_EQ(pack->object_count(), 0U);
  EXPECT_FALSE(pack->find(objects_[0].key()));
}

TEST_F(PackTest, OfTheSameObjectsIsTheSameBytes) {
  EXPECT_EQ(pack_of(objects_), whole_);
}

TEST_F(PackTest, OneKeyIsPutIntoItOnce) {
  PackWriter writer([](ByteView) -> Result<void> { return {}; });
  ASSERT_TRUE(writer.begin("kiln"));
  ASSERT_TRUE(writer.add(objects_[0]));
  ASSERT_TRUE(writer.add(objects_[0]));
  EXPECT_EQ(writer.finish({}).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(PackTest, AFailedWriteIsTheWritersError) {
  int writes = 0;
  PackWriter writer([&](ByteView) -> Result<void> {
    return ++writes < 4 ? Result<void>() : fail(ErrorCode::kIo, "full");
  });
  Result<void> done = writer.begin("kiln");
  for (const StoredObject& object : objects_) {
    if (done)
      done = writer.add(object);
  }
  EXPECT_EQ(done.error().message, "full");
}

TEST_F(PackTest, TheFirstPackEverWrittenCanStillBeRead) {
  constexpr std::string_view kGolden = "tests/unit/cache/golden/pack_v1.bin";
  const auto golden = read_file(test::paths::source(kGolden), 1 << 20).value().value();
  const auto pack = open(golden).value();
  EXPECT_EQ(pack->object_count(), objects_.size());
  EXPECT_TRUE(pack->read(pack->find(objects_[3].key()).value()));
}

TEST_F(PackTest, EachTruncationIsNoPack) {
  for (std::size_t size = 0; size < whole_.size(); ++size)
    ASSERT_EQ(refusal(ByteView(whole_).first(size)), ErrorCode::kCorrupt) << size;
  const Signer signer = ours_.signer();
  const Bytes signed_pack = pack_of(objects_, std::span(&signer, 1));
  for (std::size_t size = whole_.size() + 1; size < signed_pack.size(); ++size)
    ASSERT_EQ(refusal(ByteView(signed_pack).first(size)), ErrorCode::kCorrupt) << size;
}

TEST_F(PackTest, BytesBehindItsEndAreNoPack) {
  Bytes longer = whole_;
  longer.push_back(std::byte{0});
  EXPECT_EQ(refusal(longer), ErrorCode::kCorrupt);
}

TEST_F(PackTest, EachFlippedBitIsNoticedAtTheLatestWhenItIsRead) {
  const auto sound = open(whole_).value();
  std::vector<bool> is_used(whole_.size(), false);  // not the gaps between objects
  for (std::size_t i = 0; i < sound->row_count(); ++i) {
    const PackRow row = sound->row(i);
    std::fill_n(is_used.begin() + static_cast<std::ptrdiff_t>(row.offset), row.size,
                true);
  }
  std::fill(is_used.begin(), is_used.begin() + 64, true);
  std::fill(is_used.begin() + static_cast<std::ptrdiff_t>(test::index_of(whole_)),
            is_used.end(), true);
  for (std::size_t at = 0; at < whole_.size(); at += 1 + at % 5) {
    Bytes changed = whole_;
    changed[at] ^= std::byte(1U << at % 8);
    const auto pack = open(changed);
    std::size_t sound_objects = 0;
    for (const StoredObject& object : objects_) {
      const auto row = pack ? (*pack)->find(object.key()) : std::nullopt;
      sound_objects += row && (*pack)->read(*row) ? 1 : 0;
    }
    if (is_used[at])
      ASSERT_LT(sound_objects, objects_.size()) << at;
    else
      ASSERT_EQ(sound_objects, objects_.size()) << at;
  }
}

/// A pack whose hashes all fit, with a value of its index or footer changed.
template <typename T>
Bytes with(Bytes pack, std::size_t at, T value) {
  store_le(pack, at, value);
  repair_pack(pack);
  return pack;
}

TEST_F(PackTest, AnIndexThatLiesIsNoPack) {
  const std::size_t row = row_of(whole_, 1);
  const auto offset = load_le<std::uint64_t>(whole_, row + 32);
  for (const std::uint64_t wrong :
       {std::uint64_t{0}, offset + 1, offset + 8, std::uint64_t{1} << 40U,
        ~std::uint64_t{0}, ~std::uint64_t{63}, std::uint64_t{whole_.size()}})
    EXPECT_EQ(refusal(with(whole_, row + 32, wrong)), ErrorCode::kCorrupt) << wrong;
  for (const std::uint64_t wrong :
       {std::uint64_t{0}, std::uint64_t{279}, std::uint64_t{whole_.size()},
        ~std::uint64_t{0}, kMaxObjectBytes + 1})
    EXPECT_EQ(refusal(with(whole_, row + 40, wrong)), ErrorCode::kCorrupt) << wrong;
  for (const std::uint32_t kind : {0U, 5U, ~0U})
    EXPECT_EQ(refusal(with(whole_, row + 80, kind)), ErrorCode::kCorrupt) << kind;
  EXPECT_EQ(refusal(with(whole_, row + 84, 1U)), ErrorCode::kCorrupt) << "flags";
}

TEST_F(PackTest, AFooterThatLiesIsNoPack) {
  const std::size_t footer = footer_of(whole_);
  for (const std::uint64_t wrong :
       {std::uint64_t{0}, std::uint64_t{64}, std::uint64_t{whole_.size()},
        ~std::uint64_t{0}, ~std::uint64_t{87}}) {
    Bytes changed = whole_;
    store_le(changed, footer, wrong);
    EXPECT_EQ(refusal(changed), ErrorCode::kCorrupt) << wrong;
    changed = whole_;
    store_le(changed, footer + 8, wrong);
    EXPECT_EQ(refusal(changed), ErrorCode::kCorrupt) << wrong;
  }
  // A count whose product with the size of a row is that of the right one, modulo 2^64.
  Bytes changed = whole_;
  store_le(changed, footer + 8,
           load_le<std::uint64_t>(whole_, footer + 8) + (std::uint64_t{1} << 61U));
  EXPECT_EQ(refusal(changed), ErrorCode::kCorrupt);
}

TEST_F(PackTest, RowsThatOverlapOrAreNotInOrderAreNoPack) {
  Bytes overlapping = whole_;
  store_le(overlapping, row_of(whole_, 1) + 32,
           load_le<std::uint64_t>(whole_, row_of(whole_, 2) + 32));
  repair_pack(overlapping);
  EXPECT_EQ(refusal(overlapping), ErrorCode::kCorrupt);
  Bytes swapped = whole_;
  for (std::size_t i = 0; i < test::kPackRowBytes; ++i)
    std::swap(swapped[row_of(whole_, 0) + i], swapped[row_of(whole_, 1) + i]);
  repair_pack(swapped);
  EXPECT_EQ(refusal(swapped), ErrorCode::kCorrupt);
  Bytes twice = whole_;
  std::copy_n(whole_.begin() + static_cast<std::ptrdiff_t>(row_of(whole_, 0)), 32,
              twice.begin() + static_cast<std::ptrdiff_t>(row_of(whole_, 1)));
  repair_pack(twice);
  EXPECT_EQ(refusal(twice), ErrorCode::kCorrupt);
}

TEST_F(PackTest, TheIndexOfAnotherPackIsNoPack) {
  const Bytes other = pack_of(sample_objects(4));
  Bytes mixed(whole_.begin(),
              whole_.begin() + static_cast<std::ptrdiff_t>(test::index_of(whole_)));
  mixed.insert(mixed.end(),
               other.begin() + static_cast<std::ptrdiff_t>(test::index_of(other)),
               other.end());
  EXPECT_EQ(refusal(mixed), ErrorCode::kCorrupt);
}

TEST_F(PackTest, AnObjectUnderAnotherKeyIsNotUsedEvenIfAllHashesFit) {
  const auto sound = open(whole_).value();
  Bytes swapped = whole_;
  for (std::size_t i = 32; i < test::kPackRowBytes; ++i)
    std::swap(swapped[row_of(whole_, 0) + i], swapped[row_of(whole_, 1) + i]);
  repair_pack(swapped);
  const auto pack = open(swapped).value();
  for (std::size_t i = 0; i < 2; ++i) {
    if (sound->row(i).kind == PackKind::kToolchain)
      continue;
    const auto read = pack->read(pack->row(i));
    ASSERT_FALSE(read);
  }
}

TEST_F(PackTest, ANewerFormatIsLeftAlone) {
  Bytes newer = whole_;
  store_le(newer, 8, std::uint32_t{2});
  repair_pack(newer);
  EXPECT_EQ(refusal(newer), ErrorCode::kUnavailable);
}

TEST_F(PackTest, WhatAnotherUserCanWriteIsRefused) {
  write_bytes(path_, whole_);
  fs::permissions(path_, fs::perms(0664));
  EXPECT_EQ(reopen().error().code, ErrorCode::kUntrusted);
  fs::permissions(path_, fs::perms(0644));
  EXPECT_TRUE(reopen());
  files_.on_stat = [](std::string_view path, struct stat& info) {
    if (path.ends_with(".kpack"))
      info.st_uid = 54321;
  };
  EXPECT_EQ(reopen().error().code, ErrorCode::kUntrusted);
}

TEST_F(PackTest, WhatIsNoFileIsRefusedWithoutAWait) {
  EXPECT_EQ(reopen().error().code, ErrorCode::kNotFound);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(reopen().error().code, ErrorCode::kUntrusted);
}

TEST_F(PackTest, OneThatIsCutOrWrittenOverWhileOpenLosesNoMoreThanItsObjects) {
  const auto pack = open(whole_).value();
  std::vector<PackRow> rows;
  for (const StoredObject& object : objects_) rows.push_back(*pack->find(object.key()));
  std::ranges::sort(rows, {}, &PackRow::offset);
  fs::resize_file(path_, rows[2].offset + 10);
  EXPECT_TRUE(pack->read(rows[0]));
  EXPECT_TRUE(pack->read(rows[1]));
  EXPECT_FALSE(pack->read(rows[2]));
  EXPECT_FALSE(pack->read(rows[4]));
  std::fstream(path_, std::ios::in | std::ios::out).write("overwritten", 11);
  std::fstream file(path_, std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(rows[0].offset) + 300);
  file << "other bytes";
  file.close();
  EXPECT_FALSE(pack->read(rows[0]));
}

TEST_F(PackTest, OneThatIsReplacedStaysReadableAsItWas) {
  const auto pack = open(whole_).value();
  write_bytes(dir_.path() / "new", pack_of(sample_objects(1)));
  fs::rename(dir_.path() / "new", path_);
  EXPECT_TRUE(pack->read(*pack->find(objects_[4].key())));
}

TEST_F(PackTest, IsMappedOnlyWhereNobodyCanWrite) {
  const auto preads = [&] {
    files_.forget_calls();
    const auto pack = reopen().value();
    const auto calls_before = files_.calls().size();
    EXPECT_TRUE(pack->read(*pack->find(objects_[0].key())));
    return files_.calls().size() - calls_before;
  };
  write_bytes(path_, whole_);
  EXPECT_EQ(preads(), 1U);
  constexpr std::int64_t kSquashfs = 0x73717368;
  files_.on_type = [](std::string_view) { return kSquashfs; };
  EXPECT_EQ(preads(), 0U);
}

TEST_F(PackTest, AnObjectOutlivesTheMapOfItsPack) {
  files_.on_type = [](std::string_view) { return std::int64_t{0x73717368}; };
  auto pack = open(whole_).value();
  auto read = pack->read(*pack->find(objects_[2].key()));
  pack.reset();
  ASSERT_TRUE(read);
  EXPECT_TRUE(std::ranges::equal(read->file(), objects_[2].file()));
}

TEST_F(PackTest, AReadThatFailsIsAnError) {
  write_bytes(path_, whole_);
  for (int number = 0; number < 8; ++number) {
    int preads = 0;
    files_.before = [&](std::string_view call, int) {
      return call == "pread" && preads++ == number ? -EIO : 0;
    };
    const auto pack = reopen();
    EXPECT_TRUE(pack || pack.error().code == ErrorCode::kIo) << pack.error().message;
  }
}

TEST_F(PackTest, ASignatureIsCheckedWhereKeysAreTrusted) {
  const std::vector<Signer> both{theirs_.signer(), ours_.signer()};
  EXPECT_TRUE(open(pack_of(objects_, both), trusted_, true));
  EXPECT_EQ(open(pack_of(objects_, both)).value()->signatures().size(), 2U);
  const std::span<const Signer> theirs = std::span(both).first(1);
  EXPECT_TRUE(open(pack_of(objects_, theirs))) << "nobody asked for signatures";
  EXPECT_EQ(refusal(pack_of(objects_, theirs), trusted_), ErrorCode::kUntrusted);
  EXPECT_TRUE(open(whole_, trusted_)) << "trusted by its owner";
  EXPECT_EQ(refusal(whole_, trusted_, true), ErrorCode::kUntrusted);
}

TEST_F(PackTest, APoisonedObjectWithAllHashesRemadeIsRefusedByTheSignatureAlone) {
  const auto attacked = [&](std::span<const Signer> signers) {
    std::vector<StoredObject> objects = sample_objects(5);
    // The key names the inputs, so whoever can write may say that these are its bytes.
    test::SampleObject poisoned(2, "\177ELF poison");
    objects[2] = StoredObject::make(*poisoned).value();
    return pack_of(objects, signers);
  };
  const std::vector<Signer> ours{ours_.signer()};
  const Bytes sound = pack_of(objects_, ours);
  Bytes poisoned = attacked({});
  const auto block = signatures_at_end(sound);
  poisoned.insert(poisoned.end(), sound.end() - static_cast<std::ptrdiff_t>(block.size),
                  sound.end());
  const auto without_keys = open(poisoned).value();
  EXPECT_TRUE(without_keys->read(*without_keys->find(objects_[2].key())))
      << "no hash tells";
  EXPECT_TRUE(open(sound, trusted_, true));
  EXPECT_EQ(refusal(poisoned, trusted_, true), ErrorCode::kUntrusted);
  EXPECT_EQ(refusal(poisoned, trusted_), ErrorCode::kUntrusted);
  const std::vector<Signer> attackers{theirs_.signer()};
  EXPECT_EQ(refusal(attacked(attackers), trusted_, true), ErrorCode::kUntrusted);
}

}  // namespace
}  // namespace kiln::cache
