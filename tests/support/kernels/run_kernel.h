// A kernel of the templates as NVRTC compiles it: PTX of any architecture, without
// ptxas, run by the interpreter (tests/support/ptx) in the memory of the test. Pointers
// lead into GuardedMemory or LentMemory, which give them their bounds.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/device.h"
#include "kiln/geometry.h"
#include "kiln/result.h"
#include "render/kernel_spec.h"
#include "tests/support/ptx/interpreter.h"

namespace kiln_cpu {

/// Memory that has no guards, for kernels to use while this lives. The last made goes
/// first.
class LentMemory {
 public:
  template <typename T>
  explicit LentMemory(std::vector<T>& all)
      : LentMemory(all.data(), all.size() * sizeof(T), false) {}
  template <typename T>
  explicit LentMemory(const std::vector<T>& all)
      : LentMemory(all.data(), all.size() * sizeof(T), true) {}
  template <typename T>
  explicit LentMemory(std::vector<T>&&) = delete;  // it would not live on
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;
  ~LentMemory();

 private:
  LentMemory(const void* begin, std::size_t bytes, bool is_read_only);
};

struct RunOptions {
  kiln::ComputeCapability capability{9, 0};
  kiln::ptx::Schedule schedule{};
  kiln::ptx::Checks checks{};
  /// Changes the PTX before it is decoded.
  std::function<std::string(std::string)> edit{};
  /// The blocks of the grid that run.
  std::uint64_t first_block = 0;
  std::uint64_t most_blocks = UINT64_MAX;
};

/// An entry point of a kernel, and a launch of it. Arguments by address, with their
/// sizes, as Kernel::launch_with() takes them.
struct KernelLaunch {
  const kiln::render::KernelSpec& spec;
  const kiln::Parameters& parameters;
  std::string_view entry;
  kiln::Geometry geometry;
  std::span<void* const> arguments;
  std::span<const std::size_t> sizes_bytes;
};

/// Compiles the kernel, once a process and capability, and runs the launch to its end.
/// What the interpreter notices is added to `report`. Errors: of compiling;
/// kUnavailable, no NVRTC, or PTX that is not interpreted; kNotFound, no such entry
/// point; kInvalidArgument, other arguments than the kernel takes; kDevice, a kernel's
/// fault.
[[nodiscard]] kiln::Result<void> run_kernel(const KernelLaunch& launch,
                                            const RunOptions& options,
                                            kiln::ptx::Report& report);

}  // namespace kiln_cpu
