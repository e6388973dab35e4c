#include "util/elf.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "util/little_endian.h"
#include "util/posix_error.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln {
namespace {

tl::unexpected<Error> corrupt(std::string_view what) {
  return fail(ErrorCode::kCorrupt, fmt::format("bad ELF file: {}", what));
}

// The only access to a part of the file: nullopt unless the whole range is inside.
std::optional<ByteView> part(ByteView bytes, std::uint64_t offset, std::uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset)
    return std::nullopt;
  return bytes.subspan(offset, size);
}

// The name at `offset`, up to its NUL.
std::optional<std::string_view> string_at(ByteView table, std::uint64_t offset) {
  if (offset >= table.size())
    return std::nullopt;
  const std::string_view rest = as_text(table.subspan(offset));
  const std::size_t end = rest.find('\0');
  if (end == std::string_view::npos)
    return std::nullopt;
  return rest.substr(0, end);
}

#if defined(__aarch64__)
constexpr std::uint16_t kOwnMachine = EM_AARCH64;
#else
constexpr std::uint16_t kOwnMachine = EM_X86_64;
#endif

struct FileHeader {
  std::uint64_t program_headers = 0;  // offset
  std::uint64_t section_headers = 0;  // offset; 0: none
  std::uint32_t flags = 0;
  std::uint16_t machine = 0;
  std::uint16_t program_header_count = 0;
  std::uint16_t section_count = 0;
  std::uint16_t name_section = 0;
  std::uint8_t os_abi = 0;
  std::uint8_t abi_version = 0;
};

Result<FileHeader> read_file_header(ByteView bytes) {
  if (bytes.size() < sizeof(Elf64_Ehdr))
    return corrupt("shorter than a file header");
  if (!as_text(bytes).starts_with(std::string_view(ELFMAG, SELFMAG)))
    return corrupt("no ELF magic");
  const auto ident = [&](std::size_t at) { return load_le<std::uint8_t>(bytes, at); };
  if (ident(EI_CLASS) != ELFCLASS64 || ident(EI_DATA) != ELFDATA2LSB)
    return corrupt("not 64-bit little-endian");
  const auto half = [&](std::size_t at) { return load_le<std::uint16_t>(bytes, at); };
  FileHeader header;
  header.os_abi = ident(EI_OSABI);
  header.abi_version = ident(EI_ABIVERSION);
  header.machine = half(offsetof(Elf64_Ehdr, e_machine));
  header.program_headers = load_le<std::uint64_t>(bytes, offsetof(Elf64_Ehdr, e_phoff));
  header.section_headers = load_le<std::uint64_t>(bytes, offsetof(Elf64_Ehdr, e_shoff));
  header.flags = load_le<std::uint32_t>(bytes, offsetof(Elf64_Ehdr, e_flags));
  header.program_header_count = half(offsetof(Elf64_Ehdr, e_phnum));
  header.section_count = half(offsetof(Elf64_Ehdr, e_shnum));
  header.name_section = half(offsetof(Elf64_Ehdr, e_shstrndx));
  if (header.program_header_count != 0 &&
      half(offsetof(Elf64_Ehdr, e_phentsize)) != sizeof(Elf64_Phdr))
    return corrupt("program headers of a foreign size");
  if (header.section_headers != 0 &&
      half(offsetof(Elf64_Ehdr, e_shentsize)) != sizeof(Elf64_Shdr))
    return corrupt("section headers of a foreign size");
  return header;
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
      return corrupt("a note's header is cut off");
    const auto name_size = load_le<std::uint32_t>(*head, 0);
    const auto size = load_le<std::uint32_t>(*head, 4);
    const auto name = part(bytes, at + sizeof(Elf64_Nhdr), name_size);
    const std::uint64_t start =
        note_aligned(at + sizeof(Elf64_Nhdr) + name_size, alignment);
    const auto description = part(bytes, start, size);
    if (!name || !description)
      return corrupt("a note is cut off");
    std::string_view text = as_text(*name);
    text = text.substr(0, std::min(text.find('\0'), text.size()));
    out.push_back({text, load_le<std::uint32_t>(*head, 8), *description});
    at = note_aligned(start + size, alignment);
  }
  return {};
}

struct RawSection {
  std::uint32_t name_offset;
  std::uint64_t offset;
  ElfSection section;
};

// `table` has room for entry `index`.
RawSection section_header(ByteView table, std::size_t index) {
  const std::size_t at = index * sizeof(Elf64_Shdr);
  const auto word = [&](std::size_t member) {
    return load_le<std::uint32_t>(table, at + member);
  };
  const auto wide = [&](std::size_t member) {
    return load_le<std::uint64_t>(table, at + member);
  };
  RawSection raw{
      word(offsetof(Elf64_Shdr, sh_name)), wide(offsetof(Elf64_Shdr, sh_offset)), {}};
  raw.section.type = word(offsetof(Elf64_Shdr, sh_type));
  raw.section.link = word(offsetof(Elf64_Shdr, sh_link));
  raw.section.size = wide(offsetof(Elf64_Shdr, sh_size));
  raw.section.alignment = wide(offsetof(Elf64_Shdr, sh_addralign));
  return raw;
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
                                              const FileHeader& header) {
  if (header.section_headers == 0)
    return std::vector<ElfSection>();
  const auto first = part(bytes, header.section_headers, sizeof(Elf64_Shdr));
  if (!first)
    return corrupt("no room for section headers");
  // If a value does not fit the header's 16 bits, the null section has it.
  const ElfSection null = section_header(*first, 0).section;
  const std::uint64_t count =
      header.section_count == 0 ? null.size : header.section_count;
  const std::uint64_t names =
      header.name_section == SHN_XINDEX ? null.link : header.name_section;
  if (count > bytes.size() / sizeof(Elf64_Shdr))
    return corrupt("more section headers than bytes");
  const auto table = part(bytes, header.section_headers, count * sizeof(Elf64_Shdr));
  if (!table)
    return corrupt("the section headers are cut off");

  if (names != SHN_UNDEF && names >= count)
    return corrupt("no section of section names");
  const auto content = [&](const RawSection& raw) {
    return has_bytes(raw.section) ? part(bytes, raw.offset, raw.section.size)
                                  : ByteView();
  };
  std::optional<ByteView> all_names = ByteView();
  if (names != SHN_UNDEF)
    all_names = content(section_header(*table, names));
  if (!all_names)
    return corrupt("the section names are cut off");

  std::vector<ElfSection> sections;
  sections.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const RawSection raw = section_header(*table, i);
    const auto inside = content(raw);
    if (!inside)
      return corrupt(fmt::format("section {} is cut off", i));
    sections.push_back(raw.section);
    sections.back().bytes = *inside;
    if (names == SHN_UNDEF)
      continue;
    const auto name = string_at(*all_names, raw.name_offset);
    if (!name)
      return corrupt(fmt::format("section {} has no name", i));
    sections.back().name = *name;
  }
  return sections;
}

// Callers need nothing from the program headers, but a file that is shorter than they
// say was truncated.
Result<void> check_segments(ByteView bytes, const FileHeader& header) {
  if (header.program_header_count == 0)
    return {};
  const auto table = part(bytes, header.program_headers,
                          header.program_header_count * sizeof(Elf64_Phdr));
  if (!table)
    return corrupt("the program headers are cut off");
  for (std::size_t i = 0; i < header.program_header_count; ++i) {
    const ProgramHeader segment = program_header(*table, i);
    if (segment.type != PT_NULL && !part(bytes, segment.offset, segment.file_size))
      return corrupt(fmt::format("segment {} is cut off", i));
  }
  return {};
}

// An open library; only a few of its bytes are read.
struct LibraryFile {
  int fd;
  const std::filesystem::path& path;
  std::uint64_t size;

  // Exactly `count` bytes at `offset`.
  [[nodiscard]] Result<Bytes> read(std::uint64_t offset, std::uint64_t count) const {
    if (offset > size || count > size - offset)
      return corrupt(fmt::format("{} is cut off", path.native()));
    Bytes bytes(count);
    std::size_t done = 0;
    while (done < count) {
      const ssize_t n = ::pread(fd, bytes.data() + done, count - done,
                                static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0)
        return posix_error("read", path, errno);
      if (n == 0)
        return corrupt(fmt::format("{} is cut off", path.native()));
      done += static_cast<std::size_t>(n);
    }
    return bytes;
  }
};

// The build id among the notes at `offset`, if there is one.
Result<std::optional<std::string>> build_id_at(const LibraryFile& library,
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

Result<std::optional<std::string>> build_id_in_segments(const LibraryFile& library,
                                                        const FileHeader& header) {
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

Result<std::optional<std::string>> build_id_in_sections(const LibraryFile& library,
                                                        const FileHeader& header) {
  const std::size_t count = header.section_headers == 0 ? 0 : header.section_count;
  const Bytes table =
      KILN_TRY(library.read(header.section_headers, count * sizeof(Elf64_Shdr)));
  for (std::size_t i = 0; i < count; ++i) {
    const RawSection raw = section_header(table, i);
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
  const FileHeader header = KILN_TRY(read_file_header(bytes));
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
    return corrupt("the symbol table has no string table");
  if (table->bytes.size() % sizeof(Elf64_Sym) != 0)
    return corrupt("the symbol table is cut off");
  const ByteView names = sections_[table->link].bytes;
  std::vector<ElfSymbol> symbols;
  symbols.reserve(table->bytes.size() / sizeof(Elf64_Sym));
  for (std::size_t at = sizeof(Elf64_Sym); at < table->bytes.size();
       at += sizeof(Elf64_Sym)) {
    const ByteView entry = table->bytes.subspan(at, sizeof(Elf64_Sym));
    const auto name =
        string_at(names, load_le<std::uint32_t>(entry, offsetof(Elf64_Sym, st_name)));
    if (!name)
      return corrupt("a symbol has no name");
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
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR)
      return fail(ErrorCode::kNotFound,
                  fmt::format("there is no file {}", path.native()));
    return posix_error("open", path, errno);
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return posix_error("stat", path, errno);
  if (!S_ISREG(info.st_mode))
    return fail(ErrorCode::kIo, fmt::format("{} is not a regular file", path.native()));
  const LibraryFile library{file.get(), path, static_cast<std::uint64_t>(info.st_size)};

  const Bytes head = KILN_TRY(
      library.read(0, std::min<std::uint64_t>(library.size, sizeof(Elf64_Ehdr))));
  const FileHeader header = KILN_TRY(read_file_header(head));
  if (header.machine != kOwnMachine)
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} is for another kind of machine ({}, and not {})",
                            path.native(), header.machine, kOwnMachine));
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
    return fail(ErrorCode::kNotFound, fmt::format("{} has no build id", path.native()));
  return **std::move(id);
}

}  // namespace kiln
