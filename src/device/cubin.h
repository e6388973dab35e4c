// Reads what an image says about itself: architecture, suffix, entry points, resources.
// Whether it runs on a device: compatibility.h.
// Source: measured on NVRTC 13.0's output; LLVM's ELF constants for EM_CUDA.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/architecture.h"
#include "device/cuda_version.h"
#include "device/kernel_info.h"
#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln::device {

/// A kernel of a program, of global or local binding, not of the device runtime:
/// `static __global__`, or in an anonymous namespace, makes it local.
struct EntryPoint {
  std::string name;                        // lowered: "_Z1kPf"
  std::optional<std::uint32_t> registers;  // per thread; from .nv.info
  std::uint64_t static_shared_bytes = 0;   // per block; from .nv.shared.<name>
  ParameterSizes parameters{};             // from .nv.info.<name>
  bool is_local = false;                   // the driver need not find it by name
  friend bool operator==(const EntryPoint&, const EntryPoint&) = default;
};

struct CubinInfo {
  ComputeCapability capability;      // from e_flags
  std::optional<ArchSuffix> suffix;  // from .note.nv.tkinfo or e_flags; none: unknown
  std::vector<EntryPoint> entry_points;  // in symbol order
  std::vector<std::string> variables;    // __device__ and __constant__; in symbol order
};

/// `image` is a cubin, possibly hostile. Errors: kCorrupt.
[[nodiscard]] Result<CubinInfo> read_cubin(ByteView image);

/// What a cubin's first bytes say.
struct CubinHead {
  ComputeCapability capability;
  std::optional<ArchSuffix> suffix;    // as in CubinInfo
  std::optional<CudaVersion> toolkit;  // from e_version, or the toolkit note
  bool is_relocatable = false;         // it must be linked before a device loads it
};

/// `begin` is as much of a cubin as there is: its toolkit note lies before its code.
/// nullopt in `suffix` and `toolkit` may mean that the note comes later. Errors:
/// kCorrupt.
[[nodiscard]] Result<CubinHead> read_cubin_head(ByteView begin);

struct PtxInfo {
  Architecture architecture;             // from .target
  std::optional<CudaVersion> isa;        // from .version
  std::vector<EntryPoint> entry_points;  // in text order; name and is_local alone
};

/// `image` is PTX text, with or without its closing NUL. Errors: kCorrupt.
[[nodiscard]] Result<PtxInfo> read_ptx(ByteView image);

/// Checks that `image` has the kind, architecture and suffix (if it declares one) of
/// `target`, and all of `entry_points`; of LTO-IR only the kind. Errors: kCorrupt,
/// naming the mismatch.
[[nodiscard]] Result<void> check_image(ByteView image, Target target,
                                       std::span<const std::string_view> entry_points);

}  // namespace kiln::device
