// The nvJitLink of a toolkit, and its libcudadevrt.a: found beside an NVRTC, or where
// NVRTC is looked for. Neither is needed but for what is linked.

#pragma once

#include <filesystem>

#include "kiln/result.h"
#include "toolchain/toolchain.h"
#include "util/bytes.h"
#include "util/library_search.h"

namespace kiln::device {

struct Linker {
  LinkerId id;
  std::filesystem::path path;  // absolute, resolved; empty: not installed here
  Bytes device_runtime;        // libcudadevrt.a; empty: there is none
};

/// The nvJitLink for what `toolchain` compiles: of its CUDA major version. If the
/// toolchain is not installed, the one recorded with it. Errors: kUnavailable, with
/// what to install; kIo.
[[nodiscard]] Result<Linker> find_linker(const Toolchain& toolchain,
                                         const LibraryPlaces& places);

}  // namespace kiln::device
