// Copies and fills, in rows: what a stream does at once and a graph does again.

#pragma once

#include <tl/expected.hpp>

#include "tests/support/simulated_driver/abi.h"

namespace kiln::simulated {

class Simulator;

/// Bytes from a row to the next one, and from a slice of rows to the next one.
struct Pitch {
  std::size_t row = 0;
  std::size_t slice = 0;
};

/// A copy, or a fill.
struct MemoryWork {
  CUdeviceptr to = 0;
  Pitch to_pitch{};
  CUdeviceptr from = 0;  // 0: a fill
  Pitch from_pitch{};
  std::size_t width = 0;  // in bytes
  std::size_t height = 1;
  std::size_t depth = 1;
  unsigned value = 0;  // of a fill, repeated
  unsigned value_bytes = 1;
};

/// Device memory is memory.
[[nodiscard]] inline void* address_of(CUdeviceptr pointer) {
  return reinterpret_cast<void*>(pointer);  // NOLINT(performance-no-int-to-ptr)
}

[[nodiscard]] inline CUdeviceptr pointer_to(const void* memory) {
  return reinterpret_cast<CUdeviceptr>(memory);
}

/// Does it, of memory that was checked.
void perform(const MemoryWork& work);

/// Errors: CUDA_ERROR_INVALID_VALUE for what leaves an allocation,
/// CUDA_ERROR_NOT_SUPPORTED for arrays.
[[nodiscard]] tl::expected<MemoryWork, CUresult> work_of(const Simulator& simulator,
                                                         const CUDA_MEMCPY3D& copy);
[[nodiscard]] tl::expected<MemoryWork, CUresult> work_of(
    const Simulator& simulator, const CUDA_MEMSET_NODE_PARAMS& fill);

}  // namespace kiln::simulated
