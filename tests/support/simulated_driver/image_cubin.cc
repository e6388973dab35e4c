// Cubins: little-endian ELF64 files of machine EM_CUDA.

#include <elf.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "tests/support/simulated_driver/image.h"
#include "util/little_endian.h"

namespace kiln::simulated {
namespace {

constexpr std::uint16_t kMachineCuda = 190;
constexpr std::uint8_t kFirstAbiWithSmInSecondByte = 8;
constexpr std::uint8_t kCudaEntry = 0x10;  // STO_CUDA_ENTRY in st_other
constexpr std::uint32_t kToolkitInfo = 2000;
constexpr std::uint64_t kLargestGlobal = 1U << 30U;

/// A view whose every access is checked. The first that leaves it, or whatever else is
/// found wrong, is noted once for the whole file; from then on reads give zeros.
class Reader {
 public:
  Reader(ByteView bytes, std::string& wrong) : bytes_(bytes), wrong_(wrong) {}

  template <typename T>
  [[nodiscard]] T get(std::uint64_t at) const {
    const ByteView found = part(at, sizeof(T));
    return found.empty() ? T{} : load_le<T>(found, 0);
  }

  [[nodiscard]] ByteView part(std::uint64_t at, std::uint64_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) {
      fail("it is cut off");
      return {};
    }
    return bytes_.subspan(at, size);
  }

  [[nodiscard]] std::string text(std::uint64_t at) const {
    const std::string_view all =
        as_text(bytes_).substr(std::min<std::uint64_t>(at, bytes_.size()));
    if (all.find('\0') == std::string_view::npos)
      fail("a name does not end");
    return std::string(all.substr(0, all.find('\0')));
  }

  [[nodiscard]] Reader of(ByteView bytes) const { return {bytes, wrong_}; }
  [[nodiscard]] std::uint64_t size() const { return bytes_.size(); }
  [[nodiscard]] bool is_good() const { return wrong_.empty(); }
  void fail(std::string_view why) const {
    if (wrong_.empty())
      wrong_ = why;
  }

 private:
  ByteView bytes_;
  std::string& wrong_;
};

struct Section {
  std::string name;
  std::uint32_t type = 0;
  std::uint32_t link = 0;
  std::uint64_t size = 0;
  ByteView bytes;
};

struct Symbol {
  std::string name;
  unsigned char type = 0;
  unsigned char binding = 0;
  std::uint8_t other = 0;
  std::uint16_t section = 0;
  std::uint64_t value = 0;
  std::uint64_t size = 0;
};

struct File {
  Reader reader;
  std::vector<Section> sections;

  [[nodiscard]] const Section* find(std::string_view name) const {
    const auto found =
        std::find_if(sections.begin(), sections.end(),
                     [&](const Section& each) { return each.name == name; });
    return found == sections.end() ? nullptr : &*found;
  }
};

void read_sections(File& file) {
  const Reader& reader = file.reader;
  const auto table = reader.get<std::uint64_t>(offsetof(Elf64_Ehdr, e_shoff));
  const auto count = reader.get<std::uint16_t>(offsetof(Elf64_Ehdr, e_shnum));
  const auto names = reader.get<std::uint16_t>(offsetof(Elf64_Ehdr, e_shstrndx));
  const Reader headers =
      reader.of(reader.part(table, std::uint64_t{count} * sizeof(Elf64_Shdr)));
  if (names >= count)
    reader.fail("it has no section names");
  std::vector<std::uint32_t> name_offsets;
  for (std::size_t i = 0; i < count && reader.is_good(); ++i) {
    const std::uint64_t at = i * sizeof(Elf64_Shdr);
    name_offsets.push_back(
        headers.get<std::uint32_t>(at + offsetof(Elf64_Shdr, sh_name)));
    Section section;
    section.type = headers.get<std::uint32_t>(at + offsetof(Elf64_Shdr, sh_type));
    section.link = headers.get<std::uint32_t>(at + offsetof(Elf64_Shdr, sh_link));
    section.size = headers.get<std::uint64_t>(at + offsetof(Elf64_Shdr, sh_size));
    const auto start = headers.get<std::uint64_t>(at + offsetof(Elf64_Shdr, sh_offset));
    if (section.type != SHT_NULL && section.type != SHT_NOBITS)
      section.bytes = reader.part(start, section.size);
    file.sections.push_back(std::move(section));
  }
  for (std::size_t i = 0; i < count && reader.is_good(); ++i)
    file.sections[i].name = reader.of(file.sections[names].bytes).text(name_offsets[i]);
}

// "release 13.0, V13.0.88" is 13000; 0 where there is no such thing.
int toolkit_in(std::string_view text) {
  constexpr std::string_view kRelease = "release ";
  const std::size_t found = text.find(kRelease);
  if (found == std::string_view::npos)
    return 0;
  const std::string_view rest = text.substr(found + kRelease.size());
  const char* const end = rest.data() + rest.size();
  std::uint8_t major = 0;
  std::uint8_t minor = 0;
  const auto first = std::from_chars(rest.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.' ||
      std::from_chars(first.ptr + 1, end, minor).ec != std::errc())
    return 0;
  return major * 1000 + minor * 10;
}

void read_toolkit_text(const Reader& reader, std::string_view text, Image& image) {
  image.toolkit = toolkit_in(text);
  constexpr std::string_view kOption = "-arch ";
  const std::size_t found = text.find(kOption);
  if (found == std::string_view::npos)
    return;
  const std::string_view rest = text.substr(found + kOption.size());
  constexpr std::string_view kEnds(" \0", 2);
  const auto arch = parse_arch(rest.substr(0, rest.find_first_of(kEnds)));
  if (!arch || arch->base != image.arch.base)
    reader.fail("its toolkit note and its header disagree");
  else
    image.arch = *arch;
}

void read_toolkit_notes(const File& file, Image& image) {
  const Section* const section = file.find(".note.nv.tkinfo");
  if (section == nullptr)
    return;
  const Reader notes = file.reader.of(section->bytes);
  const auto padded = [](std::uint64_t size) { return (size + 3) / 4 * 4; };
  std::uint64_t at = 0;
  while (at < notes.size() && notes.is_good()) {
    const auto name_size = notes.get<std::uint32_t>(at);
    const auto size = notes.get<std::uint32_t>(at + 4);
    const auto type = notes.get<std::uint32_t>(at + 8);
    const std::uint64_t start = at + sizeof(Elf64_Nhdr) + padded(name_size);
    const ByteView text = notes.part(start, size);
    if (type == kToolkitInfo)
      read_toolkit_text(notes, as_text(text), image);
    at = start + padded(size);
  }
}

std::vector<Symbol> symbols_of(const File& file) {
  std::vector<Symbol> symbols;
  const auto table =
      std::find_if(file.sections.begin(), file.sections.end(),
                   [](const Section& each) { return each.type == SHT_SYMTAB; });
  if (table == file.sections.end())
    return symbols;
  if (table->link >= file.sections.size()) {
    file.reader.fail("its symbols have no names");
    return symbols;
  }
  const Reader entries = file.reader.of(table->bytes);
  const Reader names = file.reader.of(file.sections[table->link].bytes);
  for (std::uint64_t at = 0; at < entries.size() && entries.is_good();
       at += sizeof(Elf64_Sym)) {
    const auto info = entries.get<std::uint8_t>(at + offsetof(Elf64_Sym, st_info));
    Symbol symbol;
    symbol.name =
        names.text(entries.get<std::uint32_t>(at + offsetof(Elf64_Sym, st_name)));
    symbol.type = ELF64_ST_TYPE(info);
    symbol.binding = static_cast<unsigned char>(ELF64_ST_BIND(info));
    symbol.other = entries.get<std::uint8_t>(at + offsetof(Elf64_Sym, st_other));
    symbol.section = entries.get<std::uint16_t>(at + offsetof(Elf64_Sym, st_shndx));
    symbol.value = entries.get<std::uint64_t>(at + offsetof(Elf64_Sym, st_value));
    symbol.size = entries.get<std::uint64_t>(at + offsetof(Elf64_Sym, st_size));
    symbols.push_back(std::move(symbol));
  }
  return symbols;
}

// Calls visit(attribute, payload) for the sized records of .nv.info and its like:
// format, attribute, then 16 bits that are a value or, in format 4, a payload's size.
template <typename Visitor>
void for_each_record(const File& file, const std::string& section,
                     const Visitor& visit) {
  constexpr std::uint8_t kSizedFormat = 4;
  const Section* const found = file.find(section);
  if (found == nullptr)
    return;
  const Reader records = file.reader.of(found->bytes);
  std::uint64_t at = 0;
  while (at < records.size() && records.is_good()) {
    const bool is_sized = records.get<std::uint8_t>(at) == kSizedFormat;
    const auto attribute = records.get<std::uint8_t>(at + 1);
    const std::uint64_t size = is_sized ? records.get<std::uint16_t>(at + 2) : 0;
    if (is_sized)
      visit(attribute, records.of(records.part(at + 4, size)));
    at += 4 + size;
  }
}

// Records come in any order; each says which parameter it is.
void put_parameter(EntryPoint& entry, const Reader& record, std::size_t size) {
  constexpr std::size_t kMost = 4096;
  const auto index = record.get<std::uint16_t>(4);
  if (index >= kMost) {
    record.fail("too many parameters");
    return;
  }
  if (entry.parameters.size() <= index)
    entry.parameters.resize(index + 1U);
  entry.parameters[index] = {.offset = record.get<std::uint16_t>(6), .size = size};
}

EntryPoint entry_point(const File& file, const Symbol& symbol, std::size_t index,
                       Capability capability) {
  constexpr std::uint8_t kMaxThreads = 0x05;
  constexpr std::uint8_t kRegisterCount = 0x2f;
  constexpr std::uint8_t kParameter = 0x17;
  constexpr std::uint8_t kLargeParameter = 0x45;  // where there are more than 4 KiB
  constexpr std::uint64_t kReservedBytes = 1024;  // in the section from 9.0 on
  EntryPoint entry{.name = symbol.name};
  for_each_record(file, ".nv.info", [&](std::uint8_t attribute, const Reader& record) {
    if (attribute == kRegisterCount && record.get<std::uint32_t>(0) == index)
      entry.registers = record.get<std::uint32_t>(4);
  });
  for_each_record(file, ".nv.info." + entry.name,
                  [&](std::uint8_t attribute, const Reader& record) {
                    if (attribute == kMaxThreads)
                      entry.max_threads = record.get<std::uint16_t>(0) *
                                          record.get<std::uint16_t>(4) *
                                          record.get<std::uint16_t>(8);
                    if (attribute == kParameter)
                      put_parameter(entry, record, record.get<std::uint16_t>(10) >> 2U);
                    if (attribute == kLargeParameter)
                      put_parameter(entry, record, record.get<std::uint16_t>(8));
                  });
  if (const Section* const shared = file.find(".nv.shared." + entry.name)) {
    const std::uint64_t reserved =
        capability.major >= 9 && shared->size >= kReservedBytes ? kReservedBytes : 0;
    entry.static_shared_bytes = static_cast<unsigned>(shared->size - reserved);
  }
  return entry;
}

Global global(const File& file, const Symbol& symbol) {
  Global made{.name = symbol.name, .size = symbol.size, .initial = {}};
  if (symbol.size > kLargestGlobal || symbol.section >= file.sections.size()) {
    file.reader.fail("a variable is nowhere or too large");
    return made;
  }
  const Section& section = file.sections[symbol.section];
  if (section.type != SHT_NOBITS) {
    const ByteView bytes =
        file.reader.of(section.bytes).part(symbol.value, symbol.size);
    made.initial.assign(bytes.begin(), bytes.end());
  }
  return made;
}

void read_header(const Reader& reader, Image& image) {
  constexpr std::string_view kMagic("\177ELF\2\1", 6);
  if (as_text(reader.part(0, kMagic.size())) != kMagic)
    reader.fail("no little-endian 64-bit ELF file");
  if (reader.get<std::uint16_t>(offsetof(Elf64_Ehdr, e_machine)) != kMachineCuda)
    reader.fail("an ELF file for another machine");
  const auto flags = reader.get<std::uint32_t>(offsetof(Elf64_Ehdr, e_flags));
  const bool is_new =
      reader.get<std::uint8_t>(EI_ABIVERSION) >= kFirstAbiWithSmInSecondByte;
  const int sm = static_cast<int>((is_new ? flags >> 8U : flags) & 0xFFU);
  image.arch.base = {sm / 10, sm % 10};
}

}  // namespace

tl::expected<Image, Refusal> read_cubin(ByteView bytes) {
  std::string wrong;
  Image image;
  File file{Reader(bytes, wrong), {}};
  read_header(file.reader, image);
  read_sections(file);
  read_toolkit_notes(file, image);
  const std::vector<Symbol> symbols = symbols_of(file);
  for (std::size_t i = 0; i < symbols.size() && file.reader.is_good(); ++i) {
    const Symbol& symbol = symbols[i];
    if (symbol.section == SHN_UNDEF)
      continue;
    if (symbol.type == STT_FUNC && (symbol.other & kCudaEntry) != 0) {
      image.entry_points.push_back(entry_point(file, symbol, i, image.arch.base));
      image.entry_points.back().is_local = symbol.binding == STB_LOCAL;
    }
    // Of local binding, too: NVRTC makes every variable local, and its documentation
    // finds them by name.
    if (symbol.type == STT_OBJECT && symbol.section < SHN_LORESERVE)
      image.globals.push_back(global(file, symbol));
  }
  if (!wrong.empty())
    return tl::unexpected(Refusal{CUDA_ERROR_INVALID_IMAGE, "bad cubin: " + wrong});
  return image;
}

}  // namespace kiln::simulated
