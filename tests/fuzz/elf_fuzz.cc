// Any bytes as an ELF file, a cubin, PTX, and as the image of a hit.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>

#include "device/cubin.h"
#include "util/elf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using kiln::device::ImageKind;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto elf = kiln::ElfFile::parse(bytes)) {
    std::ignore = elf->notes();
    std::ignore = elf->symbols();
  }
  std::ignore = kiln::device::read_cubin(bytes);
  std::ignore = kiln::device::read_ptx(bytes);
  constexpr std::array<std::string_view, 1> kNames{"_Z5scaleIfEvPT_S0_"};
  for (const ImageKind kind : {ImageKind::kCubin, ImageKind::kPtx, ImageKind::kLtoIr})
    std::ignore = kiln::device::check_image(bytes, {{{8, 0}}, kind}, kNames);
  return 0;
}
