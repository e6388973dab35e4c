// The headers of 64-bit little-endian ELF files: that of the file, and those of its
// sections. elf.h and elf_outline.h read files by them.

#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kiln/result.h"
#include "util/bytes.h"
#include "util/elf.h"

namespace kiln {

/// e_machine of this machine's files.
#if defined(__aarch64__)
inline constexpr std::uint16_t kOwnMachine = EM_AARCH64;
#else
inline constexpr std::uint16_t kOwnMachine = EM_X86_64;
#endif

struct ElfFileHeader {
  std::uint64_t program_headers = 0;  // offset
  std::uint64_t section_headers = 0;  // offset; 0: none
  std::uint32_t version = 0;
  std::uint32_t flags = 0;
  std::uint16_t type = 0;  // ET_*
  std::uint16_t machine = 0;
  std::uint16_t program_header_count = 0;
  std::uint16_t section_count = 0;
  std::uint16_t name_section = 0;
  std::uint8_t os_abi = 0;
  std::uint8_t abi_version = 0;
};

/// `bytes` begin with the header. Errors: kCorrupt.
[[nodiscard]] Result<ElfFileHeader> read_elf_file_header(ByteView bytes);

struct ElfSectionHeader {
  std::uint32_t name_offset;
  std::uint64_t offset;
  ElfSection section;  // without its name and bytes
};

/// `table` has room for entry `index`.
[[nodiscard]] ElfSectionHeader elf_section_header(ByteView table, std::size_t index);

/// Where the section headers and their names are.
struct ElfSectionTable {
  std::uint64_t count = 0;
  std::uint64_t names = 0;  // the index of the section of names; 0: none
};

/// Of a file of `file_bytes` with the first section header `first`, which has what does
/// not fit the file header's 16 bits. Errors: kCorrupt.
[[nodiscard]] Result<ElfSectionTable> elf_section_table(const ElfFileHeader& header,
                                                        ByteView first,
                                                        std::uint64_t file_bytes);

/// The string at `offset` of a table, up to its NUL; nullopt if it is not inside.
[[nodiscard]] std::optional<std::string_view> elf_string(ByteView table,
                                                         std::uint64_t offset);

/// kCorrupt: "bad ELF file: <what>".
[[nodiscard]] tl::unexpected<Error> bad_elf(std::string_view what);

}  // namespace kiln
