#include "util/elf.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "util/elf_headers.h"
#include "util/file_range.h"
#include "util/little_endian.h"
#include "util/try.h"

namespace kiln {
namespace {

// The only access to a part of the file: nullopt unless the whole range is inside.
std::optional<ByteView> part(ByteView bytes, std::uint64_t offset, std::uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset)
    return std::nullopt;
  return bytes.subspan(offset, size);
}

struct ProgramHeader {
  std::uint32_t type = 0;
  std::uint64_t offset = 0;
  std::uint64_t file_size = 0;
  std::uint64_t alignment = 0;
};

// `table` has room for entry `index`.
ProgramHeader program_header(ByteView table, std::size_t index) {
  const std::size_t at = index * sizeof(Elf64_Phdr);
  return {
      .type = load_le<std::uint32_t>(table, at + offsetof(Elf64_Phdr, p_type)),
      .offset = load_le<std::uint64_t>(table, at + offsetof(Elf64_Phdr, p_offset)),
      .file_size = load_le<std::uint64_t>(table, at + offsetof(Elf64_Phdr, p_filesz)),
      .alignment = load_le<std::uint64_t>(table, at + offsetof(Elf64_Phdr, p_align))};
}

// `offset` rounded up to the notes' alignment: 8 where they say so, else 4.
std::uint64_t note_aligned(std::uint64_t offset, std::uint64_t alignment) {
  const std::uint64_t unit = alignment == 8 ? 8 : 4;
  return (offset + unit - 1) / unit * unit;
}

Result<void> append_notes(ByteView bytes, std::uint64_t alignment,
                          std::vector<ElfNote>& out) {
  std::uint64_t at = 0;
  while (at < bytes.size()) {
    const auto head = part(bytes, at, sizeof(Elf64_Nhdr));
    if (!head)
      return bad_elf("a note's header is cut off");
    const auto name_size = load_le<std::uint32_t>(*head, 0);
    const auto size = load_le<std::uint32_t>(*head, 4);
    const auto name = part(bytes, at + sizeof(Elf64_Nhdr), name_size);
    const std::uint64_t start =
        note_aligned(at + sizeof(Elf64_Nhdr) + name_size, alignment);
    const auto description = part(bytes, start, size);
    if (!name || !description)
      return bad_elf("a note is cut off");
    std::string_view text = as_text(*name);
    text = text.substr(0, std::min(text.find('\0'), text.size()));
    out.push_back({text, load_le<std::uint32_t>(*head, 8), *description});
    at = note_aligned(start + size, alignment);
  }
  return {};
}

// In relocatable cubins .nv.global and .nv.shared.<kernel> have types of NVIDIA's own,
// and, as with SHT_NOBITS, a size but no bytes.
constexpr std::uint32_t kCudaGlobal = 0x70000007;
constexpr std::uint32_t kCudaShared = 0x7000000a;

bool has_bytes(const ElfSection& section) {
  return section.type != SHT_NOBITS && section.type != SHT_NULL &&
         section.type != kCudaGlobal && section.type != kCudaShared;
}

Result<std::vector<ElfSection>> read_sections(ByteView bytes,
                                              const ElfFileHeader& header) {
  if (header.section_headers == 0)
    return std::vector<ElfSection>();
  const auto first = part(bytes, header.section_headers, sizeof(Elf64_Shdr));
  if (!first)
    return bad_elf("no room for section headers");
  const auto [count, names] = KILN_TRY(elf_section_table(header, *first, bytes.size()));
  const auto table = part(bytes, header.section_headers, count * sizeof(Elf64_Shdr));
  if (!table)
    return bad_elf("the section headers are cut off");
  const auto content = [&](const ElfSectionHeader& raw) {
    return has_bytes(raw.section) ? part(bytes, raw.offset, raw.section.size)
                                  : ByteView();
  };
  std::optional<ByteView> all_names = ByteView();
  if (names != SHN_UNDEF)
    all_names = content(elf_section_header(*table, names));
  if (!all_names)
    return bad_elf("the section names are cut off");

  std::vector<ElfSection> sections;
  sections.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const ElfSectionHeader raw = elf_section_header(*table, i);
    const auto inside = content(raw);
    if (!inside)
      return bad_elf(fmt::format("section {} is cut off", i));
    sections.push_back(raw.section);
    sections.back().bytes = *inside;
    if (names == SHN_UNDEF)
      continue;
    const auto name = elf_string(*all_names, raw.name_offset);
    if (!name)
      return bad_elf(fmt::format("section {} has no name", i));
    sections.back().name = *name;
  }
  return sections;
}

// Callers need nothing from the program headers, but a file that is shorter than they
// say was truncated.
Result<void> check_segments(ByteView bytes, const ElfFileHeader& header) {
  if (header.program_header_count == 0)
    return {};
  const auto table = part(bytes, header.program_headers,
                          header.program_header_count * sizeof(Elf64_Phdr));
  if (!table)
    return bad_elf("the program headers are cut off");
  for (std::size_t i = 0; i < header.program_header_count; ++i) {
    const ProgramHeader segment = program_header(*table, i);
    if (segment.type != PT_NULL && !part(bytes, segment.offset, segment.file_size))
      return bad_elf(fmt::format("segment {} is cut off", i));
  }
  return {};
}

// The build id among the notes at `offset`, if there is one.
Result<std::optional<std::string>> build_id_at(const FileRange& library,
                                               std::uint64_t offset, std::uint64_t size,
                                               std::uint64_t alignment) {
  constexpr std::uint64_t kLongestNotes = 65536;
  if (size > kLongestNotes)
    return std::nullopt;
  const Bytes bytes = KILN_TRY(library.read(offset, size));
  std::vector<ElfNote> notes;
  KILN_TRY(append_notes(bytes, alignment, notes));
  for (const ElfNote& note : notes) {
    if (note.name == ELF_NOTE_GNU && note.type == NT_GNU_BUILD_ID &&
        !note.description.empty())
      return to_hex(note.description);
  }
  return std::nullopt;
}

Result<std::optional<std::string>> build_id_in_segments(const FileRange& library,
                                                        const ElfFileHeader& header) {
  const std::size_t count = header.program_header_count;
  const Bytes table =
      KILN_TRY(library.read(header.program_headers, count * sizeof(Elf64_Phdr)));
  for (std::size_t i = 0; i < count; ++i) {
    const ProgramHeader segment = program_header(table, i);
    if (segment.type != PT_NOTE)
      continue;
    if (auto id = KILN_TRY(
            build_id_at(library, segment.offset, segment.file_size, segment.alignment)))
      return id;
  }
  return std::nullopt;
}

Result<std::optional<std::string>> build_id_in_sections(const FileRange& library,
                                                        const ElfFileHeader& header) {
  const std::size_t count = header.section_headers == 0 ? 0 : header.section_count;
  const Bytes table =
      KILN_TRY(library.read(header.section_headers, count * sizeof(Elf64_Shdr)));
  for (std::size_t i = 0; i < count; ++i) {
    const ElfSectionHeader raw = elf_section_header(table, i);
    if (raw.section.type != SHT_NOTE)
      continue;
    if (auto id = KILN_TRY(
            build_id_at(library, raw.offset, raw.section.size, raw.section.alignment)))
      return id;
  }
  return std::nullopt;
}

}  // namespace

Result<ElfFile> ElfFile::parse(ByteView bytes) {
  const ElfFileHeader header = KILN_TRY(read_elf_file_header(bytes));
  KILN_TRY(check_segments(bytes, header));
  ElfFile file;
  file.machine_ = header.machine;
  file.os_abi_ = header.os_abi;
  file.abi_version_ = header.abi_version;
  file.flags_ = header.flags;
  file.sections_ = KILN_TRY(read_sections(bytes, header));
  return file;
}

const ElfSection* ElfFile::find_section(std::string_view name) const {
  const auto found =
      std::find_if(sections_.begin(), sections_.end(),
                   [&](const ElfSection& section) { return section.name == name; });
  return found == sections_.end() ? nullptr : &*found;
}

Result<std::vector<ElfNote>> ElfFile::notes() const {
  std::vector<ElfNote> notes;
  for (const ElfSection& section : sections_) {
    if (section.type == SHT_NOTE)
      KILN_TRY(append_notes(section.bytes, section.alignment, notes));
  }
  return notes;
}

Result<std::vector<ElfSymbol>> ElfFile::symbols() const {
  const auto table =
      std::find_if(sections_.begin(), sections_.end(),
                   [](const ElfSection& each) { return each.type == SHT_SYMTAB; });
  if (table == sections_.end())
    return std::vector<ElfSymbol>();
  if (table->link >= sections_.size())
    return bad_elf("the symbol table has no string table");
  if (table->bytes.size() % sizeof(Elf64_Sym) != 0)
    return bad_elf("the symbol table is cut off");
  const ByteView names = sections_[table->link].bytes;
  std::vector<ElfSymbol> symbols;
  symbols.reserve(table->bytes.size() / sizeof(Elf64_Sym));
  for (std::size_t at = sizeof(Elf64_Sym); at < table->bytes.size();
       at += sizeof(Elf64_Sym)) {
    const ByteView entry = table->bytes.subspan(at, sizeof(Elf64_Sym));
    const auto name =
        elf_string(names, load_le<std::uint32_t>(entry, offsetof(Elf64_Sym, st_name)));
    if (!name)
      return bad_elf("a symbol has no name");
    const auto info = load_le<std::uint8_t>(entry, offsetof(Elf64_Sym, st_info));
    symbols.push_back(
        {.name = *name,
         .type = static_cast<unsigned char>(ELF64_ST_TYPE(info)),
         .binding = static_cast<unsigned char>(ELF64_ST_BIND(info)),
         .other = load_le<std::uint8_t>(entry, offsetof(Elf64_Sym, st_other)),
         .section = load_le<std::uint16_t>(entry, offsetof(Elf64_Sym, st_shndx))});
  }
  return symbols;
}

Result<std::string> read_build_id(const std::filesystem::path& path) {
  const FileRange library = KILN_TRY(FileRange::open(path));
  const ElfFileHeader header = KILN_TRY(
      read_elf_file_header(KILN_TRY(library.read_up_to(0, sizeof(Elf64_Ehdr)))));
  if (header.machine != kOwnMachine)
    return fail(ErrorCode::kUnavailable,
                "{} is for another kind of machine ({}, and not {})", path.native(),
                header.machine, kOwnMachine);
  // Tools that edit libraries (patchelf) move the notes and leave the segment pointing
  // at other bytes: then the section headers are right.
  Result<std::optional<std::string>> id = build_id_in_segments(library, header);
  if (!id || !*id) {
    const auto second = build_id_in_sections(library, header);
    if (second && *second)
      id = second;
  }
  if (!id)
    return tl::unexpected(std::move(id).error());
  if (!*id)
    return fail(ErrorCode::kNotFound, "{} has no build id", path.native());
  return **std::move(id);
}

}  // namespace kiln
