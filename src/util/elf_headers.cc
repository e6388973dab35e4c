#include "util/elf_headers.h"

#include <elf.h>

#include "util/little_endian.h"
#include "util/try.h"

namespace kiln {

tl::unexpected<Error> bad_elf(std::string_view what) {
  return fail(ErrorCode::kCorrupt, "bad ELF file: {}", what);
}

Result<ElfFileHeader> read_elf_file_header(ByteView bytes) {
  if (bytes.size() < sizeof(Elf64_Ehdr))
    return bad_elf("shorter than a file header");
  if (!as_text(bytes).starts_with(std::string_view(ELFMAG, SELFMAG)))
    return bad_elf("no ELF magic");
  const auto ident = [&](std::size_t at) { return load_le<std::uint8_t>(bytes, at); };
  if (ident(EI_CLASS) != ELFCLASS64 || ident(EI_DATA) != ELFDATA2LSB)
    return bad_elf("not 64-bit little-endian");
  const auto half = [&](std::size_t at) { return load_le<std::uint16_t>(bytes, at); };
  ElfFileHeader header;
  header.os_abi = ident(EI_OSABI);
  header.abi_version = ident(EI_ABIVERSION);
  header.type = half(offsetof(Elf64_Ehdr, e_type));
  header.machine = half(offsetof(Elf64_Ehdr, e_machine));
  header.version = load_le<std::uint32_t>(bytes, offsetof(Elf64_Ehdr, e_version));
  header.program_headers = load_le<std::uint64_t>(bytes, offsetof(Elf64_Ehdr, e_phoff));
  header.section_headers = load_le<std::uint64_t>(bytes, offsetof(Elf64_Ehdr, e_shoff));
  header.flags = load_le<std::uint32_t>(bytes, offsetof(Elf64_Ehdr, e_flags));
  header.program_header_count = half(offsetof(Elf64_Ehdr, e_phnum));
  header.section_count = half(offsetof(Elf64_Ehdr, e_shnum));
  header.name_section = half(offsetof(Elf64_Ehdr, e_shstrndx));
  if (header.program_header_count != 0 &&
      half(offsetof(Elf64_Ehdr, e_phentsize)) != sizeof(Elf64_Phdr))
    return bad_elf("program headers of a foreign size");
  if (header.section_headers != 0 &&
      half(offsetof(Elf64_Ehdr, e_shentsize)) != sizeof(Elf64_Shdr))
    return bad_elf("section headers of a foreign size");
  return header;
}

ElfSectionHeader elf_section_header(ByteView table, std::size_t index) {
  const std::size_t at = index * sizeof(Elf64_Shdr);
  const auto word = [&](std::size_t member) {
    return load_le<std::uint32_t>(table, at + member);
  };
  const auto wide = [&](std::size_t member) {
    return load_le<std::uint64_t>(table, at + member);
  };
  ElfSectionHeader raw{
      word(offsetof(Elf64_Shdr, sh_name)), wide(offsetof(Elf64_Shdr, sh_offset)), {}};
  raw.section.type = word(offsetof(Elf64_Shdr, sh_type));
  raw.section.link = word(offsetof(Elf64_Shdr, sh_link));
  raw.section.size = wide(offsetof(Elf64_Shdr, sh_size));
  raw.section.alignment = wide(offsetof(Elf64_Shdr, sh_addralign));
  return raw;
}

Result<ElfSectionTable> elf_section_table(const ElfFileHeader& header, ByteView first,
                                          std::uint64_t file_bytes) {
  const ElfSection null = elf_section_header(first, 0).section;
  const ElfSectionTable table{
      .count = header.section_count == 0 ? null.size : header.section_count,
      .names = header.name_section == SHN_XINDEX ? null.link : header.name_section};
  if (table.count > file_bytes / sizeof(Elf64_Shdr))
    return bad_elf("more section headers than bytes");
  if (table.names != SHN_UNDEF && table.names >= table.count)
    return bad_elf("no section of section names");
  return table;
}

std::optional<std::string_view> elf_string(ByteView table, std::uint64_t offset) {
  if (offset >= table.size())
    return std::nullopt;
  const std::string_view rest = as_text(table.subspan(offset));
  const std::size_t end = rest.find('\0');
  if (end == std::string_view::npos)
    return std::nullopt;
  return rest.substr(0, end);
}

}  // namespace kiln
