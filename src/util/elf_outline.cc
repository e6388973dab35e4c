#include "util/elf_outline.h"

#include <elf.h>

#include "util/elf_headers.h"
#include "util/try.h"

namespace kiln {
namespace {

constexpr std::uint64_t kMostSections = 1'000'000;
constexpr std::uint64_t kMostNameBytes = 64ULL << 20U;

Result<Bytes> read_names(const FileRange& file, const Elf64_Shdr& header) {
  if (header.sh_size > kMostNameBytes)
    return fail(ErrorCode::kResourceLimit, "{} has {} bytes of section names",
                file.name(), header.sh_size);
  return file.read(header.sh_offset, header.sh_size);
}

}  // namespace

Result<ElfOutline> read_elf_outline(const FileRange& file) {
  const Elf64_Ehdr header = KILN_TRY(
      about(file.name(),
            read_elf_file_header(KILN_TRY(file.read_up_to(0, sizeof(Elf64_Ehdr))))));
  ElfOutline outline{header.e_machine, {}};
  if (header.e_shoff == 0)
    return outline;
  const Bytes first = KILN_TRY(file.read(header.e_shoff, sizeof(Elf64_Shdr)));
  const ElfSectionTable place =
      KILN_TRY(about(file.name(), elf_section_table(header, first, file.size())));
  if (place.count > kMostSections)
    return fail(ErrorCode::kResourceLimit, "{} has {} sections", file.name(),
                place.count);
  const Bytes table =
      KILN_TRY(file.read(header.e_shoff, place.count * sizeof(Elf64_Shdr)));
  if (place.names == SHN_UNDEF)
    return outline;
  const Bytes names =
      KILN_TRY(read_names(file, elf_entry<Elf64_Shdr>(table, place.names)));
  for (std::size_t i = 0; i < place.count; ++i) {
    const auto each = elf_entry<Elf64_Shdr>(table, i);
    if (each.sh_type == SHT_NOBITS || each.sh_type == SHT_NULL)
      continue;
    const auto name = elf_string(names, each.sh_name);
    if (!name)
      return fail(ErrorCode::kCorrupt, "{}: bad ELF file: section {} has no name",
                  file.name(), i);
    FileRange content = KILN_TRY(file.part(each.sh_offset, each.sh_size));
    outline.sections.push_back({std::string(*name), std::move(content)});
  }
  return outline;
}

}  // namespace kiln
