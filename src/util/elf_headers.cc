#include "util/elf_headers.h"

#include <elf.h>

#include "util/try.h"

namespace kiln {

tl::unexpected<Error> bad_elf(std::string_view what) {
  return fail(ErrorCode::kCorrupt, "bad ELF file: {}", what);
}

Result<Elf64_Ehdr> read_elf_file_header(ByteView bytes) {
  if (bytes.size() < sizeof(Elf64_Ehdr))
    return bad_elf("shorter than a file header");
  const auto header = elf_entry<Elf64_Ehdr>(bytes);
  if (!as_text(bytes).starts_with(std::string_view(ELFMAG, SELFMAG)))
    return bad_elf("no ELF magic");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    return bad_elf("not 64-bit little-endian");
  if (header.e_phnum != 0 && header.e_phentsize != sizeof(Elf64_Phdr))
    return bad_elf("program headers of a foreign size");
  if (header.e_shoff != 0 && header.e_shentsize != sizeof(Elf64_Shdr))
    return bad_elf("section headers of a foreign size");
  return header;
}

Result<ElfSectionTable> elf_section_table(const Elf64_Ehdr& header, ByteView first,
                                          std::uint64_t file_bytes) {
  const auto null = elf_entry<Elf64_Shdr>(first);
  const ElfSectionTable table{
      .count = header.e_shnum == 0 ? null.sh_size : header.e_shnum,
      .names = header.e_shstrndx == SHN_XINDEX ? null.sh_link : header.e_shstrndx};
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
