#include "binaries/fat_binary.h"

#include "tests/support/fat_binary_builder.h"
#include "tests/support/is_error.h"
#include "tests/support/test.h"
#include "tests/unit/binaries/file_of.h"

namespace kiln::binaries {
namespace {

using test::fat_binary;
using test::FatEntry;
using test::file_of;
using test::IsError;

/// The targets in each fat binary.
Result<std::vector<std::vector<std::string>>> targets_in(ByteView bytes) {
  std::vector<std::vector<std::string>> found;
  const auto done =
      read_fat_binaries(file_of(bytes), [&](const FatBinary& entries) -> Result<void> {
        auto& names = found.emplace_back();
        for (const FatBinaryEntry& entry : entries)
          names.push_back(to_string(entry.target) + " " +
                          std::string(word_of(entry.compression)));
        return {};
      });
  if (!done)
    return tl::unexpected(done.error());
  return found;
}

Bytes small_fat_binary() {
  return fat_binary({{.kind = 2, .sm = 80, .image = Bytes(24)},
                     {.kind = 1,
                      .sm = 90,
                      .flags = 0x8011,
                      .image = Bytes(13),
                      .compressed_bytes = 13,
                      .isa_major = 9,
                      .isa_minor = 0}});
}

TEST(FatBinaries, FlagsSayCompressionAndSuffix) {
  const Bytes bytes = fat_binary({{.kind = 2, .sm = 75, .flags = 0x11},
                                  {.kind = 2, .sm = 90, .flags = 0x100011},
                                  {.kind = 2, .sm = 103, .flags = 0x1208011},
                                  {.kind = 1, .sm = 120, .flags = 0x202011},
                                  {.kind = 8, .sm = 90, .flags = 0x18011}});
  EXPECT_THAT(test::value_of(targets_in(bytes)),
              ElementsAre(ElementsAre("sm_75 none", "sm_90a none", "sm_103f zstd",
                                      "compute_120f lz4", "lto_90 zstd")));
}

TEST(FatBinaries, EntriesOfUnknownKindsArePassedOver) {
  const Bytes bytes = fat_binary({{.kind = 64, .sm = 75, .image = Bytes(40)},
                                  {.kind = 2, .sm = 80, .image = Bytes(8)}});
  EXPECT_THAT(test::value_of(targets_in(bytes)),
              ElementsAre(ElementsAre("sm_80 none")));
}

TEST(FatBinaries, FollowOneAnotherWithZerosBetween) {
  Bytes bytes = small_fat_binary();
  bytes.resize(bytes.size() + 4096 * 40);
  append(bytes, small_fat_binary());
  bytes.resize(bytes.size() + 16);
  EXPECT_THAT(test::value_of(targets_in(bytes)),
              ElementsAre(ElementsAre("sm_80 none", "compute_90 zstd"),
                          ElementsAre("sm_80 none", "compute_90 zstd")));
  EXPECT_THAT(test::value_of(targets_in(Bytes(100))), ElementsAre());
}

TEST(FatBinaries, CutAnywhereTheyAreCorrupt) {
  const Bytes bytes = small_fat_binary();
  for (std::size_t size = 1; size < bytes.size(); ++size)
    EXPECT_THAT(targets_in(ByteView(bytes).first(size)), IsError(ErrorCode::kCorrupt))
        << size;
}

TEST(FatBinaries, AnyFlippedBitIsReadOrRefused) {
  const Bytes bytes = small_fat_binary();
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    Bytes damaged = bytes;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    if (const auto read = targets_in(damaged); !read) {
      EXPECT_EQ(read.error().code, ErrorCode::kCorrupt) << bit;
    }
  }
}

TEST(FatBinaries, SizesThatAreAbsurdAreCorrupt) {
  struct Case {
    std::size_t offset;  // of eight bytes
    std::uint64_t value;
  };
  constexpr std::size_t kEntry = 16;
  for (const auto& [offset, value] :
       {Case{8, ~std::uint64_t{0}}, Case{8, std::uint64_t{1} << 63U},
        Case{kEntry + 8, ~std::uint64_t{0}}, Case{kEntry + 8, ~std::uint64_t{0} - 79},
        Case{kEntry, 0x0000'0000'0101'0002}, Case{kEntry, 0xFFFF'FFFF'0101'0002},
        Case{kEntry + 24, 0xFFFF'FFFF'0001'0007}}) {
    Bytes damaged = small_fat_binary();
    Bytes replaced;
    append_le(replaced, value);
    std::copy(replaced.begin(), replaced.end(),
              damaged.begin() + static_cast<std::ptrdiff_t>(offset));
    EXPECT_THAT(targets_in(damaged), IsError(ErrorCode::kCorrupt))
        << offset << " " << value;
  }
}

TEST(FatBinaries, BytesOfAnythingElseInTheSectionAreCorrupt) {
  Bytes bytes = small_fat_binary();
  append(bytes, as_bytes("something else than a fat binary"));
  EXPECT_THAT(targets_in(bytes),
              IsError(ErrorCode::kCorrupt, HasSubstr("no magic at")));
}

}  // namespace
}  // namespace kiln::binaries
