#include "util/elf.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "util/elf_headers.h"
#include "util/file_range.h"
#include "util/try.h"

namespace kiln {
namespace {

// The only access to a part of the file: nullopt unless the whole range is inside.
std::optional<ByteView> part(ByteView bytes, std::uint64_t offset, std::uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset)
    return std::nullopt;
  return bytes.subspan(offset, size);
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
    const auto [name_size, size, type] = elf_entry<Elf64_Nhdr>(*head);
    const auto name = part(bytes, at + sizeof(Elf64_Nhdr), name_size);
    const std::uint64_t start =
        note_aligned(at + sizeof(Elf64_Nhdr) + name_size, alignment);
    const auto description = part(bytes, start, size);
    if (!name || !description)
      return bad_elf("a note is cut off");
    std::string_view text = as_text(*name);
    text = text.substr(0, std::min(text.find('\0'), text.size()));
    out.push_back({text, type, *description});
    at = note_aligned(start + size, alignment);
  }
  return {};
}

// In relocatable cubins .nv.global and .nv.shared.<kernel> have types of NVIDIA's own,
// and, as with SHT_NOBITS, a size but no bytes.
constexpr std::uint32_t kCudaGlobal = 0x70000007;
constexpr std::uint32_t kCudaShared = 0x7000000a;

bool has_bytes(const Elf64_Shdr& section) {
  return section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL &&
         section.sh_type != kCudaGlobal && section.sh_type != kCudaShared;
}

Result<std::vector<ElfSection>> read_sections(ByteView bytes,
                                              const Elf64_Ehdr& header) {
  if (header.e_shoff == 0)
    return std::vector<ElfSection>();
  const auto first = part(bytes, header.e_shoff, sizeof(Elf64_Shdr));
  if (!first)
    return bad_elf("no room for section headers");
  const auto [count, names] = KILN_TRY(elf_section_table(header, *first, bytes.size()));
  const auto table = part(bytes, header.e_shoff, count * sizeof(Elf64_Shdr));
  if (!table)
    return bad_elf("the section headers are cut off");
  const auto content = [&](const Elf64_Shdr& raw) {
    return has_bytes(raw) ? part(bytes, raw.sh_offset, raw.sh_size) : ByteView();
  };
  std::optional<ByteView> all_names = ByteView();
  if (names != SHN_UNDEF)
    all_names = content(elf_entry<Elf64_Shdr>(*table, names));
  if (!all_names)
    return bad_elf("the section names are cut off");
  std::vector<ElfSection> sections;
  sections.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto raw = elf_entry<Elf64_Shdr>(*table, i);
    const auto inside = content(raw);
    if (!inside)
      return bad_elf(fmt::format("section {} is cut off", i));
    sections.push_back(
        {{}, raw.sh_type, raw.sh_link, raw.sh_size, raw.sh_addralign, *inside});
    if (names == SHN_UNDEF)
      continue;
    const auto name = elf_string(*all_names, raw.sh_name);
    if (!name)
      return bad_elf(fmt::format("section {} has no name", i));
    sections.back().name = *name;
  }
  return sections;
}

// Callers need nothing from the program headers, but a file that is shorter than they
// say was truncated.
Result<void> check_segments(ByteView bytes, const Elf64_Ehdr& header) {
  if (header.e_phnum == 0)
    return {};
  const auto table = part(bytes, header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr));
  if (!table)
    return bad_elf("the program headers are cut off");
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = elf_entry<Elf64_Phdr>(*table, i);
    if (segment.p_type != PT_NULL && !part(bytes, segment.p_offset, segment.p_filesz))
      return bad_elf(fmt::format("segment {} is cut off", i));
  }
  return {};
}

// Where a header says that there are notes.
struct NotePlace {
  bool is_note;
  std::uint64_t offset;
  std::uint64_t size;
  std::uint64_t alignment;
};

NotePlace note_place(const Elf64_Phdr& segment) {
  return {segment.p_type == PT_NOTE, segment.p_offset, segment.p_filesz,
          segment.p_align};
}

NotePlace note_place(const Elf64_Shdr& section) {
  return {section.sh_type == SHT_NOTE, section.sh_offset, section.sh_size,
          section.sh_addralign};
}

// The first build id among the notes of a table of `count` headers at `offset`.
template <typename Header>
Result<std::string> build_id_in(const FileRange& library, std::uint64_t offset,
                                std::size_t count) {
  constexpr std::uint64_t kLongestNotes = 65536;
  const Bytes table = KILN_TRY(library.read(offset, count * sizeof(Header)));
  for (std::size_t i = 0; i < count; ++i) {
    const NotePlace place = note_place(elf_entry<Header>(table, i));
    if (!place.is_note || place.size > kLongestNotes)
      continue;
    const Bytes bytes = KILN_TRY(library.read(place.offset, place.size));
    if (auto id = KILN_TRY(build_id_in_notes(bytes, place.alignment)); !id.empty())
      return id;
  }
  return "";
}

}  // namespace

Result<ElfFile> ElfFile::parse(ByteView bytes) {
  const Elf64_Ehdr header = KILN_TRY(read_elf_file_header(bytes));
  KILN_TRY(check_segments(bytes, header));
  ElfFile file;
  file.machine_ = header.e_machine;
  file.abi_version_ = header.e_ident[EI_ABIVERSION];
  file.flags_ = header.e_flags;
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
  for (std::size_t i = 1; i < table->bytes.size() / sizeof(Elf64_Sym); ++i) {
    const auto symbol = elf_entry<Elf64_Sym>(table->bytes, i);
    const auto name = elf_string(names, symbol.st_name);
    if (!name)
      return bad_elf("a symbol has no name");
    symbols.push_back(
        {.name = *name,
         .type = static_cast<unsigned char>(ELF64_ST_TYPE(symbol.st_info)),
         .binding = static_cast<unsigned char>(ELF64_ST_BIND(symbol.st_info)),
         .other = symbol.st_other,
         .section = symbol.st_shndx});
  }
  return symbols;
}

Result<std::string> build_id_in_notes(ByteView notes, std::uint64_t alignment) {
  std::vector<ElfNote> all;
  KILN_TRY(append_notes(notes, alignment, all));
  for (const ElfNote& note : all) {
    if (note.name == ELF_NOTE_GNU && note.type == NT_GNU_BUILD_ID &&
        !note.description.empty())
      return to_hex(note.description);
  }
  return "";
}

Result<std::string> read_build_id(const std::filesystem::path& path) {
  const FileRange library = KILN_TRY(FileRange::open(path));
  const Elf64_Ehdr header = KILN_TRY(
      read_elf_file_header(KILN_TRY(library.read_up_to(0, sizeof(Elf64_Ehdr)))));
  if (header.e_machine != kOwnMachine)
    return fail(ErrorCode::kUnavailable,
                "{} is for another kind of machine ({}, and not {})", path.native(),
                header.e_machine, kOwnMachine);
  // Tools that edit libraries (patchelf) move the notes and leave the segment pointing
  // at other bytes: then the section headers are right.
  auto id = build_id_in<Elf64_Phdr>(library, header.e_phoff, header.e_phnum);
  if (!id || id->empty()) {
    auto second = build_id_in<Elf64_Shdr>(library, header.e_shoff,
                                          header.e_shoff == 0 ? 0 : header.e_shnum);
    if (second && !second->empty())
      id = std::move(second);
  }
  if (id && id->empty())
    return fail(ErrorCode::kNotFound, "{} has no build id", path.native());
  return id;
}

}  // namespace kiln
