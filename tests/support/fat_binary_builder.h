// Makes fat binaries to read and damage, and what holds them: cubins, libraries,
// archives.

#pragma once

#include <elf.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/elf_builder.h"
#include "util/bytes.h"
#include "util/little_endian.h"

namespace kiln::test {

/// An entry, as it is in the file; `image` is stored as it is.
struct FatEntry {
  std::uint16_t kind = 2;  // 1 PTX, 2 cubin, 8 LTO-IR
  std::uint32_t sm = 90;
  std::uint64_t flags = 0;
  Bytes image{};
  std::uint32_t compressed_bytes = 0;
  std::uint64_t bytes = 0;  // decompressed
  std::uint16_t isa_major = 1;
  std::uint16_t isa_minor = 7;
};

inline Bytes fat_binary(const std::vector<FatEntry>& entries) {
  Bytes body;
  for (const FatEntry& entry : entries) {
    Bytes image = entry.image;
    pad(image, 8);
    append_le(body, entry.kind);
    append_le(body, std::uint16_t{0x101});
    append_le(body, std::uint32_t{64});
    append_le(body, std::uint64_t{image.size()});
    append_le(body, std::uint64_t{entry.compressed_bytes});
    append_le(body, entry.isa_minor);
    append_le(body, entry.isa_major);
    append_le(body, entry.sm);
    append_le(body, std::uint64_t{0});
    append_le(body, entry.flags);
    append_le(body, std::uint64_t{0});
    append_le(body, entry.bytes);
    append(body, image);
  }
  Bytes bytes;
  append_le(bytes, std::uint32_t{0xBA55ED50});
  append_le(bytes, std::uint16_t{1});
  append_le(bytes, std::uint16_t{16});
  append_le(bytes, std::uint64_t{body.size()});
  append(bytes, body);
  return bytes;
}

/// As ptxas writes one: `arch` is "sm_90a"; the toolkit's release follows "release ".
inline Bytes made_cubin(std::string_view arch = "sm_90",
                        std::string_view release = "13.0", std::uint16_t sm = 90) {
  ElfBuilder elf;
  elf.machine = 190;
  elf.abi_version = 8;
  elf.flags = static_cast<std::uint32_t>(sm) << 8U;
  Bytes description(24);
  append(description, as_bytes("Cuda compilation tools, release " +
                               std::string(release) + ", V13.0.88"));
  description.push_back(std::byte{0});
  append(description, as_bytes("-arch " + std::string(arch) + " -m 64 "));
  elf.add_section(".note.nv.tkinfo", SHT_NOTE,
                  make_note("NVIDIA Corp", 2000, description));
  elf.add_section(".text.k", SHT_PROGBITS, Bytes(128));
  return elf.build();
}

/// A host library with these bytes in that section.
inline Bytes host_library(Bytes fat_binaries, const std::string& section = ".nv_fatbin",
                          std::uint16_t machine = EM_X86_64) {
  ElfBuilder elf;
  elf.machine = machine;
  elf.add_section(".text", SHT_PROGBITS, Bytes(64));
  elf.add_section(section, SHT_PROGBITS, std::move(fat_binaries));
  return elf.build();
}

/// As ar writes one. Names have at most 15 characters.
inline Bytes archive_of(const std::vector<std::pair<std::string, Bytes>>& members) {
  Bytes bytes = bytes_of("!<arch>\n");
  for (const auto& [name, content] : members) {
    std::string header = name + "/";
    header.resize(48, ' ');
    header += std::to_string(content.size());
    header.resize(58, ' ');
    append(bytes, as_bytes(header + "`\n"));
    append(bytes, content);
    pad(bytes, 2);
  }
  return bytes;
}

}  // namespace kiln::test
