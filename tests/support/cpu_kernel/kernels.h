// Rendered kernels compiled for the CPU. kiln_cpu_kernels() in this folder's
// CMakeLists.txt generates the list.

#pragma once

#include <span>
#include <string_view>

namespace kiln_cpu {

struct CpuKernel {
  std::string_view variant;  // "scaled_softmax_fwd:dtype=bf16,max_cols=any"
  void (*entry)();           // to be cast to the entry point's own type
};

/// One generated file's kernels.
using CpuKernels = std::span<const CpuKernel>;

}  // namespace kiln_cpu
