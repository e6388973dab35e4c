// A shared library as bytes: what it exports, and under which name. Every offset is
// checked. Source: System V ABI, generic ELF chapters 4 and 5; the Linux Standard Base
// for versions.

#pragma once

#include <elf.h>

#include <cstddef>

namespace kiln::standin {

/// The bytes must outlive it, and are the caller's: read-only if those are.
class ElfImage {
 public:
  /// False unless this is a shared library for this machine with section headers,
  /// dynamic symbols and a soname.
  [[nodiscard]] bool parse(unsigned char* bytes, std::size_t size);

  [[nodiscard]] std::size_t symbol_count() const { return symbol_count_; }
  [[nodiscard]] Elf64_Sym& symbol(std::size_t index) const { return symbols_[index]; }
  [[nodiscard]] const char* name(const Elf64_Sym& symbol) const;
  [[nodiscard]] char* soname() const { return soname_; }

  /// The symbol of this name that others see, or null.
  [[nodiscard]] Elf64_Sym* find_export(const char* name) const;
  /// Whether others see it. The names of versions, which some linkers make symbols, are
  /// not exports.
  [[nodiscard]] static bool is_export(const Elf64_Sym& symbol);
  /// Where the value of a symbol lies in the file; null unless `size` bytes do.
  [[nodiscard]] unsigned char* data(const Elf64_Sym& symbol, std::size_t size) const;

  /// The n-th version that is defined here; null behind the last.
  [[nodiscard]] Elf64_Verdef* version(std::size_t n) const;
  [[nodiscard]] const char* name(const Elf64_Verdef& version) const;

 private:
  template <typename T>
  [[nodiscard]] T* at(std::size_t offset, std::size_t count = 1) const;
  /// The first section of this type, or null.
  [[nodiscard]] const Elf64_Shdr* section(Elf64_Word type) const;
  [[nodiscard]] char* string(std::size_t offset) const;

  unsigned char* bytes_ = nullptr;
  std::size_t size_ = 0;
  const Elf64_Shdr* sections_ = nullptr;
  std::size_t section_count_ = 0;
  Elf64_Sym* symbols_ = nullptr;
  std::size_t symbol_count_ = 0;
  char* strings_ = nullptr;  // of the symbols; ends with a NUL
  std::size_t strings_size_ = 0;
  char* soname_ = nullptr;
};

/// Of a version's name. Source: System V ABI, chapter 5, "Hash Table".
[[nodiscard]] unsigned elf_hash(const char* name);

}  // namespace kiln::standin
