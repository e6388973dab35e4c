// Images as compilers make them, small.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/elf_builder.h"

namespace kiln::test {

/// A cubin with kernel "k" (24 registers, 512 bytes of shared memory, bounds of 256
/// threads), kernel "plain", of which it says nothing, a device function and a variable
/// "table" of 8 bytes, and one of local binding, "own_table"; and one more kernel of
/// local binding, if that has a name.
struct MadeCubin {
  unsigned sm = 90;
  std::string arch = "sm_90";    // "": no toolkit note
  std::string release = "13.0";  // "": a note that does not say it
  std::uint8_t abi_version = 8;
  std::vector<std::uint32_t> parameters{8};  // of "k", in bytes
  std::string local_kernel{};

  [[nodiscard]] Bytes build() const {
    constexpr unsigned char kFunction = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    constexpr unsigned char kObject = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
    ElfBuilder elf;
    elf.machine = 190;
    elf.abi_version = abi_version;
    elf.flags = abi_version >= 8 ? 0x06000004U | sm << 8U : 0x00500500U | sm;
    elf.add_section(".text.k", SHT_PROGBITS, Bytes(128));
    elf.add_section(".nv.global.init", SHT_PROGBITS, bytes_of("contents"));
    if (!arch.empty())
      elf.add_section(".note.nv.tkinfo", SHT_NOTE, toolkit_note());
    elf.add_section(".nv.info", SHT_LOPROC, bytes_of_words({0x00082f04, 2, 24}));
    elf.add_section(".nv.info.k", SHT_LOPROC, info_of_k());
    elf.add_section(".nv.shared.k", SHT_NOBITS, {}, (sm >= 90 ? 1024 : 0) + 512);
    elf.add_symbol("helper", kFunction, 0);
    elf.add_symbol("k", kFunction, 0x10);
    elf.add_symbol("plain", kFunction, 0x10);
    if (!local_kernel.empty())
      elf.add_symbol(local_kernel, ELF64_ST_INFO(STB_LOCAL, STT_FUNC), 0x10);
    elf.add_symbol("elsewhere", kFunction, 0x10, SHN_UNDEF);
    elf.add_symbol("table", kObject, 0, 2, 8);
    elf.add_symbol("own_table", ELF64_ST_INFO(STB_LOCAL, STT_OBJECT), 0, 2, 4);
    return elf.build();
  }

 private:
  // The parameters one behind the other, the last one's record first, as ptxas has it.
  [[nodiscard]] Bytes info_of_k() const {
    std::vector<std::uint32_t> info{0x00080a04, 11, 0, 0x000c0504,
                                    256,        1,  1, 0x00000103};
    std::uint32_t offset = 0;
    for (std::uint32_t i = 0; i < parameters.size(); ++i) {
      info.insert(info.begin(),
                  {0x000c1704, 0, offset << 16U | i, parameters[i] << 18U | 0x1f000U});
      offset += parameters[i];
    }
    info.push_back(offset << 16U | 0x1903U);
    return bytes_of_words(info);
  }

  [[nodiscard]] Bytes toolkit_note() const {
    std::string text(24, '\0');
    text += "ptxas";
    text.push_back('\0');
    if (!release.empty())
      text += "Cuda compilation tools, release " + release + ", V" + release + ".88";
    text.push_back('\0');
    text += "-arch " + arch + " -m 64 ";
    text.push_back('\0');
    return make_note("NVIDIA Corp", 2000, as_bytes(text));
  }
};

/// Of "sm_90a", "compute_103f" or the like, as ptxas would make it.
inline Bytes cubin_for(const std::string& arch, const std::string& release = "13.0") {
  const std::size_t digits = arch.find_first_of("0123456789");
  return MadeCubin{.sm = static_cast<unsigned>(std::stoul(arch.substr(digits))),
                   .arch = arch,
                   .release = release}
      .build();
}

/// With its closing NUL.
inline Bytes ptx_for(const std::string& arch, const std::string& version = "9.0") {
  Bytes text = bytes_of("// made by hand\n.version " + version + "\n.target " + arch +
                        "\n.address_size 64\n\n.visible .entry k(\n\t.param .u64 p\n)"
                        "\n{\n\tret;\n}\n.visible .entry plain()\n{\n\tret;\n}\n");
  text.push_back(std::byte{0});
  return text;
}

}  // namespace kiln::test
