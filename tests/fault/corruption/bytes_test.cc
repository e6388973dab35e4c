// Row 14: objects that were cut, bytes that flipped, header fields that lie although
// the checksum fits.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "cache/object_header.h"
#include "tests/fault/corruption/corruption.h"
#include "tests/support/damaged_object.h"

namespace kiln::test {
namespace {

namespace header = cache::header;

constexpr std::size_t kEdge = 2048;
constexpr std::size_t kStep = 97;
constexpr std::array kMasks{0x5A, 0xFF, 0x01, 0x80, 0x10, 0x08, 0x40, 0x02};

const std::vector<const RealObject*>& damaged_kinds(const RealObjects& objects) {
  static const std::vector<const RealObject*> kinds{&objects.sm_80, &objects.sm_90,
                                                    &objects.ptx};
  return kinds;
}

std::size_t smallest(const RealObjects& objects) {
  std::size_t size = std::numeric_limits<std::size_t>::max();
  for (const RealObject* object : damaged_kinds(objects))
    size = std::min(size, object->file.size());
  return size;
}

/// Offset where the payload ends and the metadata begins, and the metadata's end.
std::pair<std::size_t, std::size_t> metadata_of(const RealObject& object) {
  const auto row = [&](std::size_t section) {
    return load_le<std::uint64_t>(object.file, section_row(section));
  };
  const std::size_t begin = header::kBytes + row(0);
  return {begin, begin + row(1)};
}

/// The check that a file fails whose byte at `offset` is another.
std::string check_of_byte(const RealObject& object, std::size_t offset) {
  if (offset < header::kVersion ||
      offset >= object.file.size() - header::kTrailer.size())
    return "magic";
  if (offset < header::kChecksum)
    return "format";
  return offset >= header::kFileBytes && offset < header::kKind ? "size" : "checksum";
}

TEST_F(Corruption, fault_14_EveryTruncationOfARealObjectIsAMiss) {
  const std::size_t step = std::max<std::size_t>(1, kStep / fault_length());
  for (const RealObject* object : damaged_kinds(objects())) {
    DamagedFile file(layout(), *object);
    const std::size_t whole = object->file.size();
    const bool every = whole == smallest(objects());
    for (std::size_t size = whole; size-- > 0;) {
      if (!every && size >= kEdge && size + kEdge < whole && size % step != 0)
        continue;
      file.resize(size);
      expect_miss(*object, "cut to", size);
      ASSERT_EQ(file.take_back(), "size") << size;
    }
    file.rewrite(object->file);
  }
  expect_all_right("mended");
}

TEST_F(Corruption, fault_14_EveryLongerFileIsAMiss) {
  for (const RealObject* object : damaged_kinds(objects())) {
    DamagedFile file(layout(), *object);
    for (const std::size_t more : {1, 7, 8, 272, 4096, 1 << 20, 513 << 20}) {
      file.resize(object->file.size() + more);
      expect_miss(*object, "longer by", more);
      ASSERT_EQ(file.take_back(), "size") << more;
    }
  }
}

TEST_F(Corruption, fault_14_EveryFlippedByteOfARealObjectIsAMiss) {
  for (const RealObject* object : damaged_kinds(objects())) {
    DamagedFile file(layout(), *object);
    const auto [metadata, metadata_end] = metadata_of(*object);
    for (std::size_t i = 0; i < object->file.size(); ++i) {
      const bool described = i < header::kBytes || (i >= metadata && i < metadata_end);
      const unsigned faults = described ? 8 : std::min(8U, fault_length());
      for (unsigned fault = 0; fault < faults; ++fault) {
        const int mask = described ? 1 << fault : kMasks[fault];
        const std::byte damaged = object->file[i] ^ static_cast<std::byte>(mask);
        file.write(i, {&damaged, 1});
        expect_miss(*object, "flipped byte", i);
        ASSERT_EQ(file.take_back(), check_of_byte(*object, i)) << i;
      }
      file.write(i, {&object->file[i], 1});
    }
  }
  expect_all_right("mended");
}

struct Field {
  std::string name;
  std::size_t offset;
};

std::vector<Field> numbers_in_the_header() {
  std::vector<Field> fields{{"size", header::kFileBytes}, {"kind", header::kKind}};
  for (std::size_t section = 0; section < header::kSectionCount; ++section) {
    const std::size_t row = section_row(section);
    fields.push_back({fmt::format("stored size of section {}", section), row});
    fields.push_back({fmt::format("raw size of section {}", section), row + 8});
    fields.push_back({fmt::format("codec of section {}", section), row + 16});
  }
  return fields;
}

std::set<std::uint64_t> extremes(std::uint64_t now) {
  std::set<std::uint64_t> values{0,
                                 1,
                                 2,
                                 now - 1,
                                 now + 1,
                                 1ULL << 31U,
                                 1ULL << 32U,
                                 cache::kMaxObjectBytes,
                                 cache::kMaxObjectBytes + 1,
                                 1ULL << 63U,
                                 0 - now,
                                 std::numeric_limits<std::uint64_t>::max() - 271,
                                 std::numeric_limits<std::uint64_t>::max()};
  values.erase(now);
  return values;
}

class CorruptHeader : public Corruption {
 protected:
  /// `file`, its checksum repaired, in place of `object`: a miss, or the right bytes
  /// and a verify that finds the lie.
  void expect_found(const RealObject& object, Bytes file, const std::string& what) {
    repair_checksum(file);
    DamagedFile damaged(layout(), object);
    damaged.rewrite(file);
    if (expect_not_wrong(object, what.c_str()) == Answer::kRight) {
      const auto verified = cache_->verify({});
      EXPECT_EQ(verified->corrupt, 1U) << what;
    }
    std::ignore = damaged.take_back();
    damaged.rewrite(object.file);
  }
};

TEST_F(CorruptHeader, fault_14_NumbersAtTheirExtremesBehindARightChecksum) {
  for (const RealObject* object : damaged_kinds(objects())) {
    for (const Field& field : numbers_in_the_header()) {
      const auto now = load_le<std::uint64_t>(object->file, field.offset);
      const bool codec_of_nothing =
          field.name.starts_with("codec") &&
          load_le<std::uint64_t>(object->file, field.offset - 16) == 0;
      for (const std::uint64_t value : extremes(now)) {
        if (codec_of_nothing && value == 0)
          continue;  // nothing, stored as it is, is nothing as well
        Bytes file = object->file;
        store_le(file, field.offset, value);
        expect_found(*object, std::move(file), fmt::format("{} {}", field.name, value));
      }
    }
  }
}

TEST_F(CorruptHeader, fault_14_EveryByteOfTheHeaderBehindARightChecksum) {
  for (const RealObject* object : damaged_kinds(objects())) {
    for (std::size_t i = header::kCheckedFrom; i < header::kBytes; ++i) {
      const std::size_t in_row = (i - header::kSections) % header::kSectionBytes;
      const std::size_t row = i - in_row;
      if (i >= header::kSections && in_row == 16 &&
          load_le<std::uint64_t>(object->file, row) == 0)
        continue;  // the codec of nothing
      for (const int mask : {0x01, 0x80, 0xFF}) {
        Bytes file = object->file;
        file[i] ^= static_cast<std::byte>(mask);
        expect_found(*object, std::move(file), fmt::format("byte {} of the header", i));
      }
    }
  }
}

TEST_F(CorruptHeader, fault_14_TargetsThatAreNone) {
  using namespace std::string_view_literals;
  for (const RealObject* object : damaged_kinds(objects())) {
    for (const std::string_view target :
         {""sv, "\0sm_80"sv, "sm_80\0a"sv, "sm_99"sv, "sm_80a"sv, "sm_"sv, "80"sv,
          "SM_80"sv, "sm_80 "sv, "compute_8"sv, "sm_99999999999999"sv,
          "compute_\xFF"sv}) {
      Bytes file = object->file;
      store_bytes(file, header::kTarget, Bytes(cache::kMaxTargetChars));
      store_bytes(file, header::kTarget,
                  as_bytes(target.substr(0, cache::kMaxTargetChars)));
      repair_checksum(file);
      DamagedFile damaged(layout(), *object);
      damaged.rewrite(file);
      expect_miss(*object, target.data());
      EXPECT_TRUE(damaged.take_back());
      damaged.rewrite(object->file);
    }
  }
}

}  // namespace
}  // namespace kiln::test
