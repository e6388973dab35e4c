// A reader for 64-bit little-endian ELF files held in memory: notes, sections, symbols.
// Finds the build id of a shared library and the architecture of a cubin.
// Source: System V ABI, generic ELF chapter 4 and 5. Every offset is checked; the input
// may be hostile.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln {

struct ElfSection {
  std::string_view name;
  std::uint32_t type = 0;
  std::uint32_t link = 0;  // of a symbol table: the index of its string table
  std::uint64_t size = 0;  // in memory; of SHT_NOBITS, too
  std::uint64_t alignment = 0;
  ByteView bytes;  // in the file; empty for SHT_NOBITS and what is like it
};

struct ElfNote {
  std::string_view name;  // "GNU", "NVIDIA Corp", ... without its trailing NUL
  std::uint32_t type = 0;
  ByteView description;
};

struct ElfSymbol {
  std::string_view name;
  unsigned char type = 0;     // STT_*
  unsigned char binding = 0;  // STB_*
  unsigned char other = 0;    // st_other, whole
  std::uint16_t section = 0;
};

/// A view; the bytes must outlive it. Thread safety: immutable.
class ElfFile {
 public:
  /// Errors: kCorrupt, naming the check that failed.
  [[nodiscard]] static Result<ElfFile> parse(ByteView bytes);

  [[nodiscard]] std::uint16_t machine() const { return machine_; }
  [[nodiscard]] std::uint8_t abi_version() const { return abi_version_; }
  [[nodiscard]] std::uint32_t flags() const { return flags_; }
  /// In file order, the null section included, so that ELF section indices apply.
  [[nodiscard]] const std::vector<ElfSection>& sections() const { return sections_; }
  /// The first of that name, or null.
  [[nodiscard]] const ElfSection* find_section(std::string_view name) const;

  /// Notes of every SHT_NOTE section. Errors: kCorrupt.
  [[nodiscard]] Result<std::vector<ElfNote>> notes() const;
  /// Symbols of .symtab, without the null symbol; none if the file was stripped.
  /// Errors: kCorrupt.
  [[nodiscard]] Result<std::vector<ElfSymbol>> symbols() const;

 private:
  std::uint16_t machine_ = 0;
  std::uint8_t abi_version_ = 0;
  std::uint32_t flags_ = 0;
  std::vector<ElfSection> sections_;
};

/// The GNU build id among the notes of a segment or section, as lower-case hex; "":
/// there is none. Errors: kCorrupt.
[[nodiscard]] Result<std::string> build_id_in_notes(ByteView notes,
                                                    std::uint64_t alignment);

/// The GNU build id of a shared library or program, as lower-case hex, read from its
/// notes without loading it and without reading the whole file.
/// Errors: kNotFound (no file, or one without a build id), kUnavailable (for another
/// kind of machine), kIo, kCorrupt.
[[nodiscard]] Result<std::string> read_build_id(const std::filesystem::path& path);

}  // namespace kiln
