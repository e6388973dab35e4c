#include "cache/pack.h"

#include <fstream>

#include "codec/fields.h"
#include "codec/private_key.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/paths.h"
#include "tests/support/sample_pack.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "tests/support/trusted_keys.h"
#include "util/read_file.h"

namespace kiln::cache {
namespace {

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
                                           const TrustedKeys* keys = nullptr,
                                           bool needs_signature = false) {
    write_bytes(path_, bytes);
    return reopen(keys, needs_signature);
  }
  Result<std::unique_ptr<const Pack>> reopen(const TrustedKeys* keys = nullptr,
                                             bool needs_signature = false) {
    return Pack::open(path_, {.file_system = files_,
                              .trust = trust_,
                              .keys = keys,
                              .needs_signature = needs_signature});
  }
  std::optional<ErrorCode> refusal(ByteView bytes, const TrustedKeys* keys = nullptr,
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
  const TrustedKeys trusted_keys_ = test::trusting({ours_.public_key()});
  const TrustedKeys* const trusted_ = &trusted_keys_;
};

TEST_F(PackTest, HasWhatWasPutIntoIt) {
  const auto pack = open(whole_).value();
  EXPECT_EQ(pack->object_count(), objects_.size());
  EXPECT_EQ(pack->header(), test::sample_header());
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
  ASSERT_TRUE(writer.begin(test::sample_header()));
  ASSERT_TRUE(writer.add(objects_[0]));
  ASSERT_TRUE(writer.add(objects_[0]));
  EXPECT_EQ(writer.finish({}).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(PackTest, AFailedWriteIsTheWritersError) {
  int writes = 0;
  PackWriter writer([&](ByteView) -> Result<void> {
    return ++writes < 4 ? Result<void>() : fail(ErrorCode::kIo, "full");
  });
  Result<void> done = writer.begin(test::sample_header());
  for (const StoredObject& object : objects_) {
    if (done)
      done = writer.add(object);
  }
  EXPECT_EQ(done.error().message, "full");
}

Bytes golden(const std::string& name) {
  const auto path = test::paths::source("tests/unit/cache/golden/" + name);
  return read_file(path, 1 << 20).value().value();
}

/// All that there were at that time, and the toolchain's record.
void expect_every_kind(const Pack& pack, std::size_t kinds = kKindCount) {
  auto objects = test::objects_of_every_kind();
  ASSERT_EQ(objects.size(), kKindCount);
  objects.erase(objects.begin() + static_cast<std::ptrdiff_t>(kinds), objects.end());
  EXPECT_EQ(pack.object_count(), objects.size());
  EXPECT_THAT(pack.bad_rows(), testing::IsEmpty());
  EXPECT_EQ(pack.unknown_rows(), 0U);
  EXPECT_THAT(pack.toolchains(), testing::ElementsAre(test::kSampleRecord));
  for (const StoredObject& object : objects) {
    const auto row = pack.find(object.key());
    ASSERT_TRUE(row) << to_string(object.kind());
    EXPECT_EQ(row->kind, pack_kind(object.kind()));
    const auto read = pack.read(*row);
    ASSERT_TRUE(read) << to_string(object.kind()) << ": " << read.error().detail;
    EXPECT_EQ(read->kind(), object.kind());
    EXPECT_EQ(as_text(read->payload()), as_text(object.payload()));
  }
}

TEST_F(PackTest, AnObjectOfEveryKindComesBackAsThatKind) {
  expect_every_kind(*open(pack_of(test::objects_of_every_kind())).value());
}

TEST_F(PackTest, ALargeObjectOfLtoIrIsNoToolchain) {
  test::SampleObject sample(1, std::string(100'000, 'x'));
  sample->kind = Kind::kLtoIr;
  const StoredObject large = StoredObject::make(*sample).value();
  const auto pack = open(pack_of(std::span(&large, 1))).value();
  EXPECT_EQ(pack->object_count(), 1U);
  EXPECT_TRUE(pack->read(pack->find(large.key()).value()));
}

TEST_F(PackTest, TheFirstPackEverWrittenCanStillBeRead) {
  const auto pack = open(golden("pack_v1.bin")).value();
  EXPECT_EQ(pack->object_count(), objects_.size());
  EXPECT_TRUE(pack->read(pack->find(objects_[3].key()).value()));
  EXPECT_EQ(pack->header(), PackHeader{.producer = "kiln 0.2.0"});
}

// Version 1 wrote LTO-IR under the number of a toolchain's record.
TEST_F(PackTest, AnObjectOfEveryKindIsReadOfAPackOfVersionOne) {
  expect_every_kind(*open(golden("pack_v1_every_kind.bin")).value(), 4);
}

TEST_F(PackTest, TheFirstPackOfVersionTwoCanStillBeRead) {
  const auto pack = open(golden("pack_v2.bin")).value();
  expect_every_kind(*pack, 4);
  EXPECT_EQ(pack->header(), test::sample_header());
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

/// As many of the objects as are found, and sound, in a pack of these bytes.
std::size_t sound_objects(const Pack& pack, const std::vector<StoredObject>& objects) {
  std::size_t sound = 0;
  for (const StoredObject& object : objects) {
    const auto row = pack.find(object.key());
    sound += row && pack.read(*row) ? 1 : 0;
  }
  return sound;
}

TEST_F(PackTest, EachFlippedBitIsNoticedAtTheLatestWhenItIsRead) {
  const auto sound = open(whole_).value();
  std::vector<bool> is_used(whole_.size(), false);  // not the gaps between objects
  for (const PackRow& row : sound->rows()) {
    std::fill_n(is_used.begin() + static_cast<std::ptrdiff_t>(row.offset), row.size,
                true);
  }
  std::fill_n(is_used.begin(), test::header_bytes_of(whole_), true);
  std::fill(is_used.begin() + static_cast<std::ptrdiff_t>(test::index_of(whole_)),
            is_used.end(), true);
  for (std::size_t at = 0; at < whole_.size(); at += 1 + at % 5) {
    Bytes changed = whole_;
    changed[at] ^= std::byte(1U << at % 8);
    const auto pack = open(changed);
    const std::size_t left = pack ? sound_objects(**pack, objects_) : 0;
    const bool is_whole = left == objects_.size() && (*pack)->bad_rows().empty();
    ASSERT_NE(is_whole, is_used[at]) << at;
  }
}

/// A pack whose hashes all fit, with a value of its index or footer changed.
template <typename T>
Bytes with(Bytes pack, std::size_t at, T value) {
  store_le(pack, at, value);
  repair_pack(pack);
  return pack;
}

TEST_F(PackTest, ARowThatLiesCostsThatRow) {
  std::size_t number = 1;  // of an object
  while (load_le<std::uint32_t>(whole_, row_of(whole_, number) + 80) != 1) ++number;
  const std::size_t row = row_of(whole_, number);
  const Digest key(ByteView(whole_).subspan(row).first<Digest::kSize>());
  const auto expect_lost = [&](const Bytes& changed, const std::string& what) {
    const auto pack = open(changed);
    ASSERT_TRUE(pack) << what << ": " << pack.error().message;
    ASSERT_EQ((*pack)->bad_rows().size(), 1U) << what;
    EXPECT_EQ((*pack)->bad_rows()[0].key, key) << what;
    EXPECT_FALSE((*pack)->find(key)) << what;
    EXPECT_EQ(sound_objects(**pack, objects_), objects_.size() - 1) << what;
  };
  const auto offset = load_le<std::uint64_t>(whole_, row + 32);
  for (const std::uint64_t wrong :
       {std::uint64_t{0}, offset + 1, offset + 8, std::uint64_t{1} << 40U,
        ~std::uint64_t{0}, ~std::uint64_t{63}, std::uint64_t{whole_.size()}})
    expect_lost(with(whole_, row + 32, wrong), "offset " + std::to_string(wrong));
  for (const std::uint64_t wrong :
       {std::uint64_t{0}, std::uint64_t{279}, std::uint64_t{whole_.size()},
        ~std::uint64_t{0}, kMaxObjectBytes + 1})
    expect_lost(with(whole_, row + 40, wrong), "size " + std::to_string(wrong));
  // As a toolchain it would need its own digest as its key.
  expect_lost(with(whole_, row + 80, 4U), "an object under the number of a toolchain");
}

TEST_F(PackTest, RowsOfALaterVersionAreSkippedAndCounted) {
  for (const auto& [at, value] : {std::pair(80U, 7U), std::pair(80U, 0U),
                                  std::pair(80U, ~0U), std::pair(84U, 1U)}) {
    const auto pack = open(with(whole_, row_of(whole_, 1) + at, value)).value();
    EXPECT_EQ(pack->unknown_rows(), 1U) << value;
    EXPECT_THAT(pack->bad_rows(), testing::IsEmpty()) << value;
    EXPECT_GE(sound_objects(*pack, objects_), objects_.size() - 1) << value;
  }
  // Version 1 ended with 4.
  const Bytes first = golden("pack_v1.bin");
  for (const auto& [at, value] : {std::pair(80U, 5U), std::pair(84U, 1U)}) {
    const auto pack = open(with(first, row_of(first, 1) + at, value)).value();
    EXPECT_EQ(pack->unknown_rows(), 0U) << value;
    EXPECT_EQ(pack->bad_rows().size(), 1U) << value;
  }
}

/// The bytes of a pack with the fields of its header replaced.
Bytes with_fields(const Bytes& pack, const Bytes& fields) {
  Bytes changed = pack;
  test::store_le(changed, 16, std::uint64_t{fields.size()});
  test::store_bytes(changed, 24, fields);
  repair_pack(changed);
  return changed;
}

TEST_F(PackTest, FieldsOfALaterVersionAreIgnoredAndThoseMissingAreNoPack) {
  Fields fields;
  fields.add("name", "n");
  fields.add("a later field", "1");
  fields.add("producer", "p");
  fields.add("created_ns", "5");
  EXPECT_EQ(refusal(with_fields(whole_, fields.encode())), ErrorCode::kCorrupt);
  fields.add("serial", "6");
  const auto pack = open(with_fields(whole_, fields.encode())).value();
  EXPECT_EQ(pack->header(),
            (PackHeader{.producer = "p", .name = "n", .created_ns = 5, .serial = 6}));
  fields.add("serial", "7");  // the first counts
  EXPECT_EQ(open(with_fields(whole_, fields.encode())).value()->header().serial, 6U);
  Bytes cut = fields.encode();
  cut.pop_back();
  EXPECT_EQ(refusal(with_fields(whole_, cut)), ErrorCode::kCorrupt);
}

TEST_F(PackTest, AHeaderThatLiesIsNoPack) {
  const auto size = static_cast<std::uint32_t>(test::header_bytes_of(whole_));
  for (const std::uint32_t wrong : {0U, 1U, 63U, size - 64, size + 1, 65600U, ~0U})
    EXPECT_EQ(refusal(with(whole_, 12, wrong)), ErrorCode::kCorrupt) << wrong;
  for (const std::uint64_t wrong :
       {std::uint64_t{0}, std::uint64_t{size}, ~std::uint64_t{0}})
    EXPECT_EQ(refusal(with(whole_, 16, wrong)), ErrorCode::kCorrupt) << wrong;
  EXPECT_EQ(refusal(with(whole_, 8, 0U)), ErrorCode::kCorrupt) << "version 0";
  PackHeader long_one = test::sample_header();
  long_one.name = std::string(70'000, 'n');
  PackWriter writer([](ByteView) -> Result<void> { return {}; });
  EXPECT_EQ(writer.begin(long_one).error().code, ErrorCode::kInvalidArgument);
  long_one.name.resize(60'000);
  EXPECT_TRUE(writer.begin(long_one));
}

TEST_F(PackTest, ASignatureCoversTheHeader) {
  const Signer signer = ours_.signer();
  const Bytes sound = pack_of(objects_, std::span(&signer, 1));
  const auto block = signatures_at_end(sound);
  Bytes renamed = pack_of(objects_);
  const std::string name = "job.kpack";
  const auto wanted = as_bytes(name);
  const auto at =
      std::search(renamed.begin(), renamed.end(), wanted.begin(), wanted.end());
  *at ^= std::byte{1};
  repair_pack(renamed);
  EXPECT_EQ(open(renamed).value()->header().name, "kob.kpack") << "no hash tells";
  renamed.insert(renamed.end(), sound.end() - static_cast<std::ptrdiff_t>(block.size),
                 sound.end());
  EXPECT_EQ(refusal(renamed, trusted_, true), ErrorCode::kUntrusted);
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

TEST_F(PackTest, ARowWithTheBytesOrTheKeyOfAnotherCostsOneOfThem) {
  std::vector<std::size_t> rows;  // of objects
  for (std::size_t i = 0; i <= objects_.size(); ++i) {
    if (load_le<std::uint32_t>(whole_, row_of(whole_, i) + 80) == 1)
      rows.push_back(row_of(whole_, i));
  }
  Bytes overlapping = whole_;
  store_le(overlapping, rows[0] + 32, load_le<std::uint64_t>(whole_, rows[1] + 32));
  repair_pack(overlapping);
  Bytes twice = whole_;
  std::copy_n(whole_.begin() + static_cast<std::ptrdiff_t>(rows[0]), 32,
              twice.begin() + static_cast<std::ptrdiff_t>(rows[1]));
  repair_pack(twice);
  for (const Bytes& changed : {overlapping, twice}) {
    const auto pack = open(changed).value();
    EXPECT_EQ(pack->bad_rows().size(), 1U);
    EXPECT_EQ(pack->rows().size(), objects_.size());
    // Both were changed; which of them is left depends on where it is.
    EXPECT_GE(sound_objects(*pack, objects_), objects_.size() - 2);
  }
}

TEST_F(PackTest, RowsThatAreNotInOrderAreFound) {
  Bytes swapped = whole_;
  for (std::size_t i = 0; i < test::kPackRowBytes; ++i)
    std::swap(swapped[row_of(whole_, 0) + i], swapped[row_of(whole_, 4) + i]);
  repair_pack(swapped);
  const auto pack = open(swapped).value();
  EXPECT_EQ(sound_objects(*pack, objects_), objects_.size());
}

TEST_F(PackTest, ADamagedRecordOfAToolchainCostsThatRecord) {
  const auto sound = open(whole_).value();
  const auto record =
      std::ranges::find(sound->rows(), PackKind::kToolchain, &PackRow::kind);
  Bytes changed = whole_;
  changed[record->offset] ^= std::byte{1};
  const auto pack = open(changed).value();
  EXPECT_THAT(pack->toolchains(), testing::IsEmpty());
  ASSERT_EQ(pack->bad_rows().size(), 1U);
  EXPECT_EQ(pack->bad_rows()[0].key, record->key);
  EXPECT_EQ(sound_objects(*pack, objects_), objects_.size());
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
    if (sound->rows()[i].kind == PackKind::kToolchain)
      continue;
    const auto row = pack->find(sound->rows()[i].key);
    EXPECT_FALSE(row && pack->read(*row));
  }
}

TEST_F(PackTest, ANewerFormatIsLeftAlone) {
  Bytes newer = whole_;
  store_le(newer, 8, kPackVersion + 1);
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

// squashfs, erofs, iso9660, cramfs, romfs: what cannot be cut can fail all the same,
// and in a mapped file an I/O error would be SIGBUS.
TEST_F(PackTest, AnIoErrorCostsTheRowOnEveryFileSystem) {
  write_bytes(path_, whole_);
  for (const std::int64_t type :
       {0x0, 0x73717368, int(0xE0F5E1E2), 0x9660, 0x28cd3d45, 0x7275}) {
    files_.on_type = [&](std::string_view) { return type & 0xFFFFFFFF; };
    files_.before = [](std::string_view, int) { return 0; };
    const auto pack = reopen().value();
    files_.fail("pread", EIO);
    EXPECT_FALSE(pack->read(pack->find(objects_[0].key()).value())) << type;
    files_.before = [](std::string_view, int) { return 0; };
    EXPECT_EQ(sound_objects(*pack, objects_), objects_.size()) << type;
    const std::string maps = read_text_file("/proc/self/maps", 1U << 24U).value();
    EXPECT_EQ(maps.find(path_.filename().native()), std::string::npos) << type;
  }
}

TEST_F(PackTest, AnIoErrorInARecordOfAToolchainCostsThatRecord) {
  write_bytes(path_, whole_);
  const auto calls_of_an_open = [&] {
    files_.forget_calls();
    EXPECT_TRUE(reopen());
    return static_cast<int>(files_.calls().size());
  }();
  files_.forget_calls();
  files_.before = [&](std::string_view call, int number) {
    return call == "pread" && number == calls_of_an_open - 1 ? -EIO : 0;
  };
  const auto pack = reopen().value();
  EXPECT_THAT(pack->toolchains(), testing::IsEmpty());
  EXPECT_EQ(pack->bad_rows().size(), 1U);
  EXPECT_EQ(sound_objects(*pack, objects_), objects_.size());
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
