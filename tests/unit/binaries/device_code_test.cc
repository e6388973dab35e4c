#include "binaries/device_code.h"

#include <lz4.h>
#include <minizip/zip.h>
#include <zstd.h>

#include "binaries/wheel.h"
#include "tests/support/fat_binary_builder.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "tests/unit/binaries/file_of.h"

namespace kiln::binaries {
namespace {

using test::archive_of;
using test::bytes_of;
using test::fat_binary;
using test::FatEntry;
using test::host_library;
using test::IsError;
using test::made_cubin;
using test::names_of;
using test::read_code;
using test::value_of;

constexpr std::string_view kPtx =
    "//\n// comment\n.version 8.7\n.target sm_90a\n.address_size 64\n";

FatEntry compressed(const Bytes& cubin, Compression compression) {
  FatEntry entry{.kind = 2, .sm = 90, .bytes = cubin.size()};
  if (compression == Compression::kZstd) {
    entry.flags = 0x8011;
    entry.image.resize(ZSTD_compressBound(cubin.size()));
    entry.image.resize(ZSTD_compress(entry.image.data(), entry.image.size(),
                                     cubin.data(), cubin.size(), 3));
  } else {
    entry.flags = 0x2011;
    const int size = static_cast<int>(cubin.size());
    entry.image.resize(static_cast<std::size_t>(LZ4_compressBound(size)));
    entry.image.resize(static_cast<std::size_t>(
        LZ4_compress_default(reinterpret_cast<const char*>(cubin.data()),
                             reinterpret_cast<char*>(entry.image.data()), size,
                             static_cast<int>(entry.image.size()))));
  }
  entry.compressed_bytes = static_cast<std::uint32_t>(entry.image.size());
  return entry;
}

/// With 300 KiB of symbol names before the toolkit note, as in large libraries.
Bytes large_cubin() {
  test::ElfBuilder elf;
  elf.machine = 190;
  elf.abi_version = 8;
  elf.flags = 90U << 8U;
  Bytes names;
  for (std::uint32_t i = 0; names.size() < 300'000; ++i)
    append_le(names, i * 2654435761U);
  elf.add_section(".strtab.large", SHT_PROGBITS, names);
  Bytes description(24);
  append(description, as_bytes("Cuda compilation tools, release 12.9, V12.9.1"));
  elf.add_section(".note.nv.tkinfo", SHT_NOTE,
                  test::make_note("NVIDIA Corp", 2000, description));
  return elf.build();
}

Bytes relocatable(Bytes cubin) {
  cubin[offsetof(Elf64_Ehdr, e_type)] = std::byte{ET_REL};
  return cubin;
}

TEST(DeviceCode, OfALibraryIsSummedOverItsFatBinaries) {
  Bytes section = fat_binary({{.kind = 2, .sm = 90, .image = made_cubin()},
                              {.kind = 1, .sm = 90, .isa_major = 8, .isa_minor = 7}});
  append(section, Bytes(section));
  const DeviceCode code = value_of(read_code(host_library(section)));
  EXPECT_THAT(names_of(code),
              ElementsAre("sm_90 none 13.0 x2", "compute_90 none 12.8 x2"));
  EXPECT_EQ(code.images.begin()->second.bytes, 2 * made_cubin().size());
  EXPECT_EQ(code.choices.size(), 1);
  EXPECT_EQ(code.choices.begin()->second, 2);
  EXPECT_EQ(machine_name(code.machine), "x86-64");
}

TEST(DeviceCode, ToolkitIsReadFromBehindCompressionAndManySymbols) {
  for (const Compression each : {Compression::kZstd, Compression::kLz4}) {
    const auto entry = compressed(large_cubin(), each);
    EXPECT_THAT(names_of(value_of(read_code(fat_binary({entry})))),
                ElementsAre("sm_90 " + std::string(word_of(each)) + " 12.9"));
  }
  EXPECT_THAT(names_of(value_of(read_code(large_cubin()))),
              ElementsAre("sm_90 none 12.9"));
}

TEST(DeviceCode, OldCubinsHaveTheToolkitInTheirVersion) {
  Bytes cubin = made_cubin("", "");
  cubin[EI_ABIVERSION] = std::byte{7};
  cubin[offsetof(Elf64_Ehdr, e_version)] = std::byte{118};
  cubin[offsetof(Elf64_Ehdr, e_flags)] = std::byte{80};
  cubin[offsetof(Elf64_Ehdr, e_flags) + 1] = std::byte{5};
  EXPECT_THAT(names_of(value_of(read_code(cubin))), ElementsAre("sm_80 none 11.8"));
}

TEST(DeviceCode, ACubinAndPtxStandForThemselves) {
  EXPECT_THAT(names_of(value_of(read_code(made_cubin("sm_90a")))),
              ElementsAre("sm_90a none 13.0"));
  EXPECT_THAT(names_of(value_of(read_code(as_bytes(kPtx)))),
              ElementsAre("compute_90a none 12.8"));
}

TEST(DeviceCode, ThatMustBeLinkedIsMarkedAndNeverChosen) {
  const auto section =
      fat_binary({{.kind = 2, .sm = 90, .image = relocatable(made_cubin())},
                  {.kind = 1, .sm = 90, .isa_major = 9, .isa_minor = 0},
                  {.kind = 8, .sm = 90}});
  for (const Bytes& file : {host_library(section, "__nv_relfatbin"), section}) {
    const DeviceCode code = value_of(read_code(file));
    EXPECT_THAT(names_of(code),
                ElementsAre("sm_90 none 13.0 rel", "compute_90 none 13.0 rel",
                            "lto_90 none ? rel"));
    EXPECT_THAT(code.choices, IsEmpty());
  }
}

TEST(DeviceCode, OfAnArchiveIsThatOfItsObjects) {
  const Bytes object = host_library(fat_binary({{.sm = 80, .image = made_cubin()}}));
  const Bytes archive = archive_of({{"", Bytes(7)},
                                    {"a.o", object},
                                    {"readme", bytes_of("no object")},
                                    {"b.o", object}});
  EXPECT_THAT(names_of(value_of(read_code(archive))),
              ElementsAre("sm_80 none 13.0 x2"));
  for (const std::size_t size :
       {std::size_t{30}, std::size_t{100}, archive.size() - 20})
    EXPECT_THAT(read_code(ByteView(archive).first(size)), IsError(ErrorCode::kCorrupt))
        << size;
  Bytes bad_size = archive;
  bad_size[8 + 48] = std::byte{'x'};
  EXPECT_THAT(read_code(bad_size), IsError(ErrorCode::kCorrupt, HasSubstr("member")));
  EXPECT_THAT(read_code(as_bytes("!<thin>\n")),
              IsError(ErrorCode::kUnavailable, HasSubstr("thin archive")));
}

TEST(DeviceCode, OfAnotherMachineIsListed) {
  const auto section = fat_binary({{.sm = 90, .image = made_cubin()}});
  const DeviceCode code =
      value_of(read_code(host_library(section, ".nv_fatbin", EM_AARCH64)));
  EXPECT_THAT(names_of(code), ElementsAre("sm_90 none 13.0"));
  EXPECT_EQ(machine_name(code.machine), "AArch64");
}

TEST(DeviceCode, ALibraryCutAnywhereIsCorrupt) {
  const Bytes library = host_library(fat_binary({{.image = made_cubin()}}));
  for (std::size_t size = 4; size < library.size(); ++size)
    EXPECT_THAT(read_code(ByteView(library).first(size)), IsError(ErrorCode::kCorrupt))
        << size;
}

TEST(DeviceCode, AnyFlippedByteIsReadOrRefused) {
  const Bytes library =
      host_library(fat_binary({{.image = made_cubin()},
                               compressed(made_cubin(), Compression::kZstd),
                               compressed(made_cubin(), Compression::kLz4)}));
  for (std::size_t at = 0; at < library.size(); ++at) {
    Bytes damaged = library;
    damaged[at] ^= std::byte{0xFF};
    const auto code = read_code(damaged);
    EXPECT_TRUE(code || code.error().code == ErrorCode::kCorrupt ||
                code.error().code == ErrorCode::kInvalidArgument ||
                code.error().code == ErrorCode::kResourceLimit)
        << at << code.error().message;
  }
}

TEST(DeviceCode, OtherFilesAreRefusedByName) {
  for (const std::string_view text : {"", "text", "PK\x03\x04",
                                      "\x7f"
                                      "EL"})
    EXPECT_THAT(read_code(as_bytes(text)),
                IsError(ErrorCode::kInvalidArgument, HasSubstr("file is no ELF file")));
  EXPECT_THAT(read_code(as_bytes("// a program\nint main() {}\n")),
              IsError(ErrorCode::kCorrupt, HasSubstr("no line .target")));
  Bytes elf32 = host_library({});
  elf32[EI_CLASS] = std::byte{ELFCLASS32};
  EXPECT_THAT(read_code(elf32), IsError(ErrorCode::kCorrupt, HasSubstr("64-bit")));
}

class WheelTest : public testing::Test {
 protected:
  /// A wheel with these members, the first stored, the others deflated.
  std::filesystem::path wheel(
      const std::vector<std::pair<std::string, Bytes>>& members) {
    const auto path = dir_.path() / "x.whl";
    auto* const zip = ::zipOpen64(path.c_str(), APPEND_STATUS_CREATE);
    int method = 0;
    for (const auto& [name, bytes] : members) {
      EXPECT_EQ(::zipOpenNewFileInZip64(zip, name.c_str(), nullptr, nullptr, 0, nullptr,
                                        0, nullptr, method, 6, 0),
                ZIP_OK);
      ::zipWriteInFileInZip(zip, bytes.data(), static_cast<unsigned>(bytes.size()));
      ::zipCloseFileInZip(zip);
      method = Z_DEFLATED;
    }
    ::zipClose(zip, nullptr);
    return path;
  }
  static Result<std::vector<std::string>> members_of(
      const std::filesystem::path& path) {
    std::vector<std::string> found;
    const auto done = read_wheel(path, [&](const FileRange& member) -> Result<void> {
      for (const std::string& name : names_of(value_of(read_device_code(member))))
        found.push_back(member.name().substr(path.native().size()) + " " + name);
      return {};
    });
    if (!done)
      return tl::unexpected(done.error());
    return found;
  }

  test::TempDir dir_;
};

TEST_F(WheelTest, LibrariesOfAWheelAreReadStoredOrDeflated) {
  const Bytes library = host_library(fat_binary({{.image = made_cubin()}}));
  const auto path = wheel({{"x/stored.so", library},
                           {"x/__init__.py", bytes_of("import x\n")},
                           {"x/deflated.so", library}});
  EXPECT_THAT(
      value_of(members_of(path)),
      ElementsAre(":x/stored.so sm_90 none 13.0", ":x/deflated.so sm_90 none 13.0"));
}

TEST_F(WheelTest, ADamagedWheelIsCorrupt) {
  const auto path = wheel({{"a.so", host_library(Bytes(4096))}});
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(200);
  file.put('x');
  file.close();
  EXPECT_THAT(members_of(path), IsError(ErrorCode::kCorrupt, HasSubstr("x.whl:a.so")));
  std::filesystem::resize_file(path, 100);
  EXPECT_THAT(members_of(path), IsError(ErrorCode::kCorrupt, HasSubstr("x.whl")));
}

}  // namespace
}  // namespace kiln::binaries
