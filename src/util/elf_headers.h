// The headers of 64-bit little-endian ELF files: that of the file, and those of its
// sections. elf.h and binaries/device_code.cc read files by them.

#pragma once

#include <elf.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln {

/// e_machine of this machine's files.
#if defined(__aarch64__)
inline constexpr std::uint16_t kOwnMachine = EM_AARCH64;
#else
inline constexpr std::uint16_t kOwnMachine = EM_X86_64;
#endif

/// The file is little-endian, and so are all machines with a driver of NVIDIA's: the
/// structs of <elf.h> are read as they are.
static_assert(std::endian::native == std::endian::little);

/// Entry `index` of `table`, which has room for it.
template <typename Entry>
[[nodiscard]] Entry elf_entry(ByteView table, std::size_t index = 0) {
  Entry entry;
  std::memcpy(&entry, table.data() + index * sizeof(Entry), sizeof(Entry));
  return entry;
}

/// `bytes` begin with the header. Errors: kCorrupt.
[[nodiscard]] Result<Elf64_Ehdr> read_elf_file_header(ByteView bytes);

/// Where the section headers and their names are.
struct ElfSectionTable {
  std::uint64_t count = 0;
  std::uint64_t names = 0;  // the index of the section of names; 0: none
};

/// Of a file of `file_bytes` with the first section header `first`, which has what does
/// not fit the file header's 16 bits. Errors: kCorrupt.
[[nodiscard]] Result<ElfSectionTable> elf_section_table(const Elf64_Ehdr& header,
                                                        ByteView first,
                                                        std::uint64_t file_bytes);

/// The string at `offset` of a table, up to its NUL; nullopt if it is not inside.
[[nodiscard]] std::optional<std::string_view> elf_string(ByteView table,
                                                         std::uint64_t offset);

/// kCorrupt: "bad ELF file: <what>".
[[nodiscard]] tl::unexpected<Error> bad_elf(std::string_view what);

}  // namespace kiln
