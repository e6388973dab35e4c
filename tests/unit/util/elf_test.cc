#include "util/elf.h"

#include <sys/stat.h>

#include <random>

#include "tests/support/elf_builder.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

constexpr std::string_view kBuildId = "65be0db342ad51a06876e71e210bccc5aa8322cf";

Bytes build_id_note() {
  return test::make_note("GNU", NT_GNU_BUILD_ID, from_hex(kBuildId).value());
}

Bytes small_elf(std::uint16_t machine = 190) {
  test::ElfBuilder elf;
  elf.machine = machine;
  elf.abi_version = 8;
  elf.flags = 0x6005a04;
  elf.note_segment = build_id_note();
  elf.add_section(".text", SHT_PROGBITS, Bytes(24));
  elf.add_section(".note.x", SHT_NOTE, test::make_note("X", 7, as_bytes("abcde")));
  elf.add_section(".nv.shared.k", SHT_NOBITS, {}, 4096);
  elf.add_symbol("k", ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0x10);
  elf.add_symbol("helper", ELF64_ST_INFO(STB_LOCAL, STT_FUNC), 0);
  return elf.build();
}

// Everything a reader can ask for.
bool reads_whole(ByteView bytes) {
  const auto file = ElfFile::parse(bytes);
  return file && file->notes() && file->symbols();
}

TEST(ElfFile, TellsWhatTheHeaderSays) {
  const Bytes bytes = small_elf();
  const ElfFile file = ElfFile::parse(bytes).value();
  EXPECT_EQ(file.machine(), 190);
  EXPECT_EQ(file.abi_version(), 8);
  EXPECT_EQ(file.flags(), 0x6005a04U);
}

TEST(ElfFile, TellsSectionsByNameWithTheirSizeInMemory) {
  const Bytes bytes = small_elf();
  const ElfFile file = ElfFile::parse(bytes).value();
  ASSERT_NE(file.find_section(".text"), nullptr);
  EXPECT_EQ(file.find_section(".text")->bytes.size(), 24U);
  ASSERT_NE(file.find_section(".nv.shared.k"), nullptr);
  EXPECT_EQ(file.find_section(".nv.shared.k")->size, 4096U);
  EXPECT_THAT(file.find_section(".nv.shared.k")->bytes, IsEmpty());
  EXPECT_EQ(file.find_section(".data"), nullptr);
}

TEST(ElfFile, TellsNotesAndSymbols) {
  const Bytes bytes = small_elf();
  const ElfFile file = ElfFile::parse(bytes).value();
  const auto notes = file.notes().value();
  ASSERT_THAT(notes, SizeIs(1));
  EXPECT_EQ(notes[0].name, "X");
  EXPECT_EQ(notes[0].type, 7U);
  EXPECT_EQ(as_text(notes[0].description), "abcde");
  const auto symbols = file.symbols().value();
  ASSERT_THAT(symbols, SizeIs(2));
  EXPECT_EQ(symbols[0].name, "k");
  EXPECT_EQ(symbols[0].type, STT_FUNC);
  EXPECT_EQ(symbols[0].binding, STB_GLOBAL);
  EXPECT_EQ(symbols[0].other, 0x10);
  EXPECT_EQ(symbols[1].name, "helper");
}

TEST(ElfFile, EveryTruncationIsCorrupt) {
  const Bytes whole = small_elf();
  ASSERT_TRUE(reads_whole(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A copy of its own, so that a sanitizer sees a read past its end.
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const auto file = ElfFile::parse(cut);
    EXPECT_THAT(file, test::IsError(ErrorCode::kCorrupt)) << size;
  }
}

TEST(ElfFile, NoFlippedBitCrashesTheReader) {
  const Bytes whole = small_elf();
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    Bytes flipped = whole;
    flipped[bit / 8] ^= std::byte{static_cast<unsigned char>(1U << bit % 8)};
    reads_whole(flipped);
  }
}

TEST(ElfFile, NoRandomDamageCrashesTheReader) {
  const Bytes whole = small_elf();
  std::mt19937 random(20240917);  // the same damage in every run
  for (int round = 0; round < 20000; ++round) {
    Bytes damaged = whole;
    for (int i = 0; i < 4; ++i)
      damaged[random() % damaged.size()] =
          std::byte{static_cast<unsigned char>(random())};
    reads_whole(damaged);
  }
}

TEST(ElfFile, HugeCountsAreRefusedBeforeAnythingIsAllocated) {
  Bytes bytes = small_elf();
  // No count in the header: the null section's size has it.
  const auto headers = load_le<std::uint64_t>(bytes, offsetof(Elf64_Ehdr, e_shoff));
  bytes[offsetof(Elf64_Ehdr, e_shnum)] = std::byte{0};
  for (std::size_t i = 0; i < 7; ++i)
    bytes[headers + offsetof(Elf64_Shdr, sh_size) + i] = std::byte{0xff};
  const auto file = ElfFile::parse(bytes);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("more section headers than bytes"));
}

TEST(ElfFile, RefusesOtherClassesAndOrders) {
  Bytes narrow = small_elf();
  narrow[EI_CLASS] = std::byte{ELFCLASS32};
  EXPECT_EQ(ElfFile::parse(narrow).error().code, ErrorCode::kCorrupt);
  Bytes big_endian = small_elf();
  big_endian[EI_DATA] = std::byte{ELFDATA2MSB};
  EXPECT_EQ(ElfFile::parse(big_endian).error().code, ErrorCode::kCorrupt);
}

class BuildId : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path file(ByteView bytes) const {
    test::write_file(dir_.path() / "library.so", bytes);
    return dir_.path() / "library.so";
  }
  const test::TempDir dir_;
};

TEST_F(BuildId, IsReadFromTheProgramHeadersNotes) {
  EXPECT_EQ(read_build_id(file(small_elf(test::ElfBuilder().machine))).value(),
            kBuildId);
}

TEST_F(BuildId, IsFoundBehindOtherNotes) {
  test::ElfBuilder elf;
  elf.note_segment = test::make_note("GNU", 1, Bytes(16));
  append(elf.note_segment, build_id_note());
  EXPECT_EQ(read_build_id(file(elf.build())).value(), kBuildId);
}

TEST_F(BuildId, IsFoundInTheSectionsWhereAToolHasMovedTheNotes) {
  // NVIDIA's wheel of NVRTC 12.8 is such a file.
  for (const Bytes& stale : {Bytes(36, std::byte{'X'}), Bytes(36), Bytes()}) {
    test::ElfBuilder elf;
    elf.note_segment = stale;
    elf.add_section(".note.gnu.build-id", SHT_NOTE, build_id_note());
    EXPECT_EQ(read_build_id(file(elf.build())).value(), kBuildId);
  }
}

TEST_F(BuildId, IsNotFoundWhereThereIsNone) {
  test::ElfBuilder elf;
  const auto id = read_build_id(file(elf.build()));
  EXPECT_THAT(
      id, test::IsError(ErrorCode::kNotFound, HasSubstr("library.so has no build id")));
  EXPECT_EQ(read_build_id(dir_.path() / "absent.so").error().code,
            ErrorCode::kNotFound);
}

TEST_F(BuildId, EveryTruncationUpToTheNotesIsCorrupt) {
  const Bytes whole = small_elf(test::ElfBuilder().machine);
  const std::size_t needed = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + 36;
  for (std::size_t size = 0; size < needed; ++size) {
    const auto id = read_build_id(file(ByteView(whole).first(size)));
    EXPECT_THAT(id, test::IsError(ErrorCode::kCorrupt)) << size;
  }
  EXPECT_EQ(read_build_id(file(ByteView(whole).first(needed))).value(), kBuildId);
}

TEST_F(BuildId, OfAFolderOrAPipeIsAnErrorAndNoWait) {
  EXPECT_EQ(read_build_id(dir_.path()).error().code, ErrorCode::kIo);
  const auto pipe = dir_.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(read_build_id(pipe).error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace kiln
