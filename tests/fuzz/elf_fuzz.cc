// Any bytes as an ELF file, a cubin, PTX.

#include <cstdint>
#include <span>
#include <tuple>

#include "device/cubin.h"
#include "util/elf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto elf = kiln::ElfFile::parse(bytes)) {
    std::ignore = elf->notes();
    std::ignore = elf->symbols();
  }
  std::ignore = kiln::device::read_cubin(bytes);
  std::ignore = kiln::device::read_ptx(bytes);
  return 0;
}
