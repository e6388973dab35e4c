#include "standin/elf_image.h"

#include <cstring>

namespace kiln::standin {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#endif

}  // namespace

template <typename T>
T* ElfImage::at(std::size_t offset, std::size_t count) const {
  if (offset > size_ || count > (size_ - offset) / sizeof(T) ||
      (offset % alignof(T)) != 0)
    return nullptr;
  return reinterpret_cast<T*>(bytes_ + offset);
}

bool ElfImage::parse(unsigned char* bytes, std::size_t size) {
  bytes_ = bytes;
  size_ = size;
  const auto* header = at<Elf64_Ehdr>(0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 ||
      header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_type != ET_DYN ||
      header->e_machine != kMachine || header->e_shentsize != sizeof(Elf64_Shdr))
    return false;
  section_count_ = header->e_shnum;
  sections_ = at<Elf64_Shdr>(header->e_shoff, section_count_);
  if (sections_ == nullptr)
    return false;
  const Elf64_Shdr* symbols = section(SHT_DYNSYM);
  const Elf64_Shdr* dynamic = section(SHT_DYNAMIC);
  if (symbols == nullptr || dynamic == nullptr || symbols->sh_link >= section_count_)
    return false;
  symbol_count_ = symbols->sh_size / sizeof(Elf64_Sym);
  symbols_ = at<Elf64_Sym>(symbols->sh_offset, symbol_count_);
  const Elf64_Shdr& strings = sections_[symbols->sh_link];
  strings_ = at<char>(strings.sh_offset, strings.sh_size);
  strings_size_ = strings.sh_size;
  if (symbols_ == nullptr || strings_ == nullptr || strings_size_ == 0 ||
      strings_[strings_size_ - 1] != '\0')
    return false;
  const std::size_t entries = dynamic->sh_size / sizeof(Elf64_Dyn);
  const auto* entry = at<Elf64_Dyn>(dynamic->sh_offset, entries);
  for (std::size_t i = 0; entry != nullptr && i < entries; ++i) {
    if (entry[i].d_tag == DT_SONAME)
      soname_ = string(entry[i].d_un.d_val);
  }
  return soname_ != nullptr;
}

const Elf64_Shdr* ElfImage::section(Elf64_Word type) const {
  for (std::size_t i = 0; i < section_count_; ++i) {
    if (sections_[i].sh_type == type)
      return &sections_[i];
  }
  return nullptr;
}

char* ElfImage::string(std::size_t offset) const {
  return offset < strings_size_ ? strings_ + offset : nullptr;
}

const char* ElfImage::name(const Elf64_Sym& symbol) const {
  const char* found = string(symbol.st_name);
  return found == nullptr ? "" : found;
}

bool ElfImage::is_export(const Elf64_Sym& symbol) {
  const unsigned visibility = ELF64_ST_VISIBILITY(symbol.st_other);
  return ELF64_ST_BIND(symbol.st_info) != STB_LOCAL && symbol.st_shndx != SHN_UNDEF &&
         symbol.st_shndx != SHN_ABS &&
         (visibility == STV_DEFAULT || visibility == STV_PROTECTED);
}

Elf64_Sym* ElfImage::find_export(const char* wanted) const {
  for (std::size_t i = 0; i < symbol_count_; ++i) {
    if (is_export(symbols_[i]) && std::strcmp(name(symbols_[i]), wanted) == 0)
      return &symbols_[i];
  }
  return nullptr;
}

unsigned char* ElfImage::data(const Elf64_Sym& symbol, std::size_t size) const {
  if (symbol.st_shndx >= section_count_)
    return nullptr;
  const Elf64_Shdr& in = sections_[symbol.st_shndx];
  if (in.sh_type == SHT_NOBITS || symbol.st_value < in.sh_addr)
    return nullptr;
  return at<unsigned char>(in.sh_offset + (symbol.st_value - in.sh_addr), size);
}

Elf64_Verdef* ElfImage::version(std::size_t n) const {
  const Elf64_Shdr* versions = section(SHT_GNU_verdef);
  if (versions == nullptr || n >= versions->sh_info)
    return nullptr;
  std::size_t offset = versions->sh_offset;
  auto* found = at<Elf64_Verdef>(offset);
  for (std::size_t i = 0; found != nullptr && i < n; ++i) {
    offset += found->vd_next;
    found = found->vd_next == 0 ? nullptr : at<Elf64_Verdef>(offset);
  }
  return found;
}

const char* ElfImage::name(const Elf64_Verdef& version) const {
  const auto place = static_cast<std::size_t>(
      reinterpret_cast<const unsigned char*>(&version) - bytes_);
  const auto* first = at<Elf64_Verdaux>(place + version.vd_aux);
  const char* found = first == nullptr ? nullptr : string(first->vda_name);
  return found == nullptr ? "" : found;
}

unsigned elf_hash(const char* name) {
  unsigned hash = 0;
  for (; *name != '\0'; ++name) {
    hash = (hash << 4) + static_cast<unsigned char>(*name);
    const unsigned high = hash & 0xf0000000U;
    hash = (hash ^ (high >> 24)) & ~high;
  }
  return hash;
}

}  // namespace kiln::standin
