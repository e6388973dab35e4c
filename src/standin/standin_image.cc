#include "standin/standin_image.h"

#include <cstdio>
#include <cstring>

#include "standin/identity.h"

// libkiln-nvrtc.so as it was linked. Not a file of its own, which could be of another
// version, half replaced or damaged.
__asm__(R"(
  .section .rodata
  .balign 16
  .hidden kiln_standin_template, kiln_standin_template_end
  .globl kiln_standin_template, kiln_standin_template_end
kiln_standin_template:
  .incbin ")" KILN_STANDIN_TEMPLATE R"("
kiln_standin_template_end:
  .text
)");
// NOLINTBEGIN(readability-identifier-naming): symbols of the assembly
extern "C" [[gnu::visibility("hidden")]] const unsigned char kiln_standin_template[];
extern "C"
    [[gnu::visibility("hidden")]] const unsigned char kiln_standin_template_end[];
// NOLINTEND(readability-identifier-naming)

namespace kiln::standin {
namespace {

// Without them it is no NVRTC, whatever its name.
constexpr const char* kRequired[] = {"nvrtcVersion", "nvrtcCreateProgram",
                                     "nvrtcCompileProgram"};

/// Symbols then have the version that programs ask the real library for.
const char* refuse(const ElfImage& real, const ElfImage& copy) {
  for (const char* required : kRequired) {
    if (real.find_export(required) == nullptr)
      return "it is no NVRTC";
  }
  for (std::size_t i = 0; i < real.symbol_count(); ++i) {
    if (ElfImage::is_export(real.symbol(i)) &&
        copy.find_export(real.name(real.symbol(i))) == nullptr)
      return "it exports what the stand-in lacks";
  }
  for (std::size_t n = 0; const Elf64_Verdef* version = real.version(n); ++n) {
    if (std::strcmp(real.name(*version), real.soname()) != 0)
      return "its symbols have another version than its name";
  }
  if (std::strlen(real.soname()) >= sizeof kSoname)
    return "its name is too long";
  return nullptr;
}

void hide(Elf64_Sym& symbol) {
  symbol.st_shndx = SHN_UNDEF;
  symbol.st_value = 0;
}

}  // namespace

std::size_t standin_size() {
  return static_cast<std::size_t>(kiln_standin_template_end - kiln_standin_template);
}

const char* make_standin(unsigned char* bytes, const ElfImage& real, const char* path,
                         const char* engine_path) {
  std::memcpy(bytes, kiln_standin_template, standin_size());
  ElfImage copy;
  if (!copy.parse(bytes, standin_size()))
    return "libkiln-audit.so is damaged";
  Elf64_Sym* identity = copy.find_export(kIdentity);
  unsigned char* data =
      identity == nullptr ? nullptr : copy.data(*identity, sizeof(Identity));
  if (data == nullptr || std::strcmp(copy.soname(), kSoname) != 0)
    return "libkiln-audit.so is damaged";
  hide(*identity);
  if (const char* why = refuse(real, copy))
    return why;
  Identity written{};
  if (std::snprintf(written.real_path, sizeof written.real_path, "%s", path) >=
          int{Identity::kCapacity} ||
      std::snprintf(written.engine_path, sizeof written.engine_path, "%s",
                    engine_path) >= int{Identity::kCapacity})
    return "its path is too long";
  std::memcpy(data, &written, sizeof written);
  // A program that asks whether a function is there gets the real library's answer.
  for (std::size_t i = 0; i < copy.symbol_count(); ++i) {
    Elf64_Sym& symbol = copy.symbol(i);
    if (ElfImage::is_export(symbol) && real.find_export(copy.name(symbol)) == nullptr)
      hide(symbol);
  }
  std::memcpy(copy.soname(), real.soname(), std::strlen(real.soname()) + 1);
  for (std::size_t n = 0; Elf64_Verdef* version = copy.version(n); ++n) {
    if (std::strcmp(copy.name(*version), real.soname()) != 0)
      return "libkiln-audit.so is damaged";
    version->vd_hash = elf_hash(real.soname());
  }
  return nullptr;
}

}  // namespace kiln::standin
