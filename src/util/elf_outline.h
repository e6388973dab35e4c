// The sections of an ELF file on disk, found without reading their bytes: a library
// with device code may have gigabytes.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kiln/result.h"
#include "util/file_range.h"

namespace kiln {

struct ElfSectionPlace {
  std::string name;
  FileRange bytes;
};

struct ElfOutline {
  std::uint16_t machine = 0;
  std::vector<ElfSectionPlace> sections;  // those with bytes in the file, in its order
};

/// Errors: kCorrupt, also for a file that ends before one of its sections does; kIo;
/// kResourceLimit, above 1,000,000 sections or 64 MiB of their names.
[[nodiscard]] Result<ElfOutline> read_elf_outline(const FileRange& file);

}  // namespace kiln
