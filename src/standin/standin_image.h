// The bytes of a stand-in: libkiln-nvrtc.so, made to look to the loader like one real
// library. Knows no file but that of libkiln-nvrtc.so, which is part of this one.

#pragma once

#include <cstddef>

#include "standin/elf_image.h"

namespace kiln::standin {

[[nodiscard]] std::size_t standin_size();

/// Writes standin_size() bytes to `copy`: soname and version of `real`, no function
/// that `real` lacks, and the paths by which the copy opens it and libkiln.so. The
/// result is null, or why `real` has no stand-in: then it is to be loaded itself.
[[nodiscard]] const char* make_standin(unsigned char* copy, const ElfImage& real,
                                       const char* path, const char* engine_path);

}  // namespace kiln::standin
