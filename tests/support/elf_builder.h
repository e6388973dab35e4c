// Makes small ELF files to read, damage and install in made-up toolkits.

#pragma once

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "util/bytes.h"
#include "util/little_endian.h"

namespace kiln::test {

inline Bytes bytes_of(std::string_view text) {
  const ByteView view = as_bytes(text);
  return {view.begin(), view.end()};
}

inline Bytes bytes_of_words(const std::vector<std::uint32_t>& values) {
  Bytes bytes;
  for (const std::uint32_t value : values) append_le(bytes, value);
  return bytes;
}

inline void pad(Bytes& bytes, std::size_t unit) {
  while (bytes.size() % unit != 0) bytes.push_back(std::byte{0});
}

inline Bytes make_note(std::string_view name, std::uint32_t type,
                       ByteView description) {
  Bytes note;
  append_le(note, static_cast<std::uint32_t>(name.size() + 1));
  append_le(note, static_cast<std::uint32_t>(description.size()));
  append_le(note, type);
  append(note, as_bytes(name));
  note.push_back(std::byte{0});
  pad(note, 4);
  append(note, description);
  pad(note, 4);
  return note;
}

/// File header, at most one PT_NOTE segment, contents, and the section headers last, so
/// that no byte can be cut off unseen.
class ElfBuilder {
 public:
  std::uint16_t machine = EM_X86_64;
  std::uint8_t abi_version = 0;
  std::uint32_t flags = 0;
  Bytes note_segment;

  void add_section(std::string name, std::uint32_t type, Bytes bytes,
                   std::uint64_t size_in_memory = 0) {
    sections_.push_back({std::move(name), type, std::move(bytes), size_in_memory});
  }

  void add_symbol(std::string_view name, unsigned char info, unsigned char other,
                  std::uint16_t section = 1, std::uint64_t size = 0) {
    if (symbols_.empty())
      symbols_.resize(sizeof(Elf64_Sym));  // the null symbol
    append_le(symbols_, static_cast<std::uint32_t>(symbol_names_.size()));
    symbols_.push_back(std::byte{info});
    symbols_.push_back(std::byte{other});
    append_le(symbols_, section);
    append_le(symbols_, std::uint64_t{0});
    append_le(symbols_, size);
    symbol_names_.append(name).push_back('\0');
  }

  /// Call once.
  [[nodiscard]] Bytes build() {
    if (!symbols_.empty()) {
      add_section(".symtab", SHT_SYMTAB, symbols_);
      sections_.back().link = static_cast<std::uint32_t>(sections_.size() + 1);
      add_section(".strtab", SHT_STRTAB, bytes_of(symbol_names_));
    }
    name_sections();
    Bytes file(sizeof(Elf64_Ehdr) + (note_segment.empty() ? 0 : sizeof(Elf64_Phdr)));
    const std::uint64_t notes_at = file.size();
    append(file, note_segment);
    pad(file, 8);
    for (Section& section : sections_) {
      section.offset = file.size();
      append(file, section.bytes);
      pad(file, 8);
    }
    Bytes head = file_header(file.size());
    file.resize(file.size() + sizeof(Elf64_Shdr));  // the null section
    for (const Section& section : sections_) append_header(file, section);
    if (!note_segment.empty())
      append(head, note_header(notes_at));
    std::copy(head.begin(), head.end(), file.begin());
    return file;
  }

 private:
  struct Section {
    std::string name;
    std::uint32_t type = SHT_NULL;
    Bytes bytes;
    std::uint64_t size_in_memory = 0;
    std::uint32_t link = 0;
    std::uint32_t name_offset = 0;
    std::uint64_t offset = 0;
  };

  void name_sections() {
    add_section(".shstrtab", SHT_STRTAB, {});
    std::string names(1, '\0');
    for (Section& section : sections_) {
      section.name_offset = static_cast<std::uint32_t>(names.size());
      names.append(section.name).push_back('\0');
    }
    sections_.back().bytes = bytes_of(names);
  }

  static void append_header(Bytes& out, const Section& section) {
    append_le(out, section.name_offset);
    append_le(out, section.type);
    append_le(out, std::uint64_t{0});
    append_le(out, std::uint64_t{0});
    append_le(out, section.offset);
    append_le(out,
              std::max<std::uint64_t>(section.size_in_memory, section.bytes.size()));
    append_le(out, section.link);
    append_le(out, std::uint32_t{0});
    append_le(out, std::uint64_t{4});
    append_le(out, std::uint64_t{0});
  }

  [[nodiscard]] Bytes file_header(std::uint64_t section_headers) const {
    Bytes out = bytes_of(std::string_view(ELFMAG, SELFMAG));
    for (const int ident : {ELFCLASS64, ELFDATA2LSB, EV_CURRENT, 0, int{abi_version}})
      append_le(out, static_cast<std::uint8_t>(ident));
    out.resize(EI_NIDENT);
    append_le(out, std::uint16_t{ET_DYN});
    append_le(out, machine);
    append_le(out, std::uint32_t{EV_CURRENT});
    append_le(out, std::uint64_t{0});
    append_le(out, std::uint64_t{note_segment.empty() ? 0 : sizeof(Elf64_Ehdr)});
    append_le(out, section_headers);
    append_le(out, flags);
    append_le(out, std::uint16_t{sizeof(Elf64_Ehdr)});
    append_le(out, std::uint16_t{sizeof(Elf64_Phdr)});
    append_le(out, static_cast<std::uint16_t>(note_segment.empty() ? 0 : 1));
    append_le(out, std::uint16_t{sizeof(Elf64_Shdr)});
    append_le(out, static_cast<std::uint16_t>(sections_.size() + 1));
    append_le(out, static_cast<std::uint16_t>(sections_.size()));
    return out;
  }

  [[nodiscard]] Bytes note_header(std::uint64_t offset) const {
    Bytes out;
    append_le(out, std::uint32_t{PT_NOTE});
    append_le(out, std::uint32_t{PF_R});
    append_le(out, offset);
    append_le(out, std::uint64_t{0});
    append_le(out, std::uint64_t{0});
    append_le(out, std::uint64_t{note_segment.size()});
    append_le(out, std::uint64_t{note_segment.size()});
    append_le(out, std::uint64_t{4});
    return out;
  }

  std::vector<Section> sections_;
  Bytes symbols_;
  std::string symbol_names_ = std::string(1, '\0');
};

inline void write_file(const std::filesystem::path& path, ByteView bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << as_text(bytes);
}

/// A file that looks like a shared library with that build id and cannot be opened.
inline void write_library(const std::filesystem::path& path,
                          std::string_view build_id) {
  ElfBuilder elf;
  elf.note_segment =
      make_note(ELF_NOTE_GNU, NT_GNU_BUILD_ID, from_hex(build_id).value());
  write_file(path, elf.build());
}

}  // namespace kiln::test
