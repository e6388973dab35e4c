// Rendered kernels compiled for the CPU. kiln_cpu_kernels() in this folder's
// CMakeLists.txt generates the list.

#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

namespace kiln_cpu {

/// One entry point of a kernel.
struct CpuKernel {
  std::string_view variant;  // "scaled_softmax_fwd:dtype=bf16,max_cols=any"
  std::string_view entry;    // "scaled_softmax_fwd"
  /// Calls it with the values at `arguments`, in order, as CUDA takes them.
  void (*call)(void* const* arguments);
  std::span<const std::size_t> sizes;  // of those values, in bytes
};

/// One generated file's kernels.
using CpuKernels = std::span<const CpuKernel>;

template <auto kEntry>
struct EntryPoint;

template <typename... Types, void (*kEntry)(Types...)>
struct EntryPoint<kEntry> {
  static constexpr std::array<std::size_t, sizeof...(Types)> kSizes{sizeof(Types)...};

  static void call(void* const* arguments) {
    [&]<std::size_t... kAt>(std::index_sequence<kAt...>) {
      kEntry(*static_cast<Types*>(arguments[kAt])...);
    }
    (std::index_sequence_for<Types...>());
  }
};

template <auto kEntry>
CpuKernel cpu_kernel(std::string_view variant, std::string_view entry) {
  return {variant, entry, &EntryPoint<kEntry>::call, EntryPoint<kEntry>::kSizes};
}

}  // namespace kiln_cpu
