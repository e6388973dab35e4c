// Turns geometry expressions into numbers that a CUDA device can launch.
// Source of the limits: CUDA C++ Programming Guide, "Technical Specifications per
// Compute Capability"; the highest of any capability, so that a device may allow less.

#pragma once

#include <cstdint>
#include <span>

#include "kiln/geometry.h"
#include "kiln/result.h"
#include "render/kernel_parts.h"

namespace kiln::render {

inline constexpr std::int64_t kMaxGridX = 2147483647;
inline constexpr std::int64_t kMaxGridYz = 65535;
inline constexpr std::int64_t kMaxBlockXy = 1024;
inline constexpr std::int64_t kMaxBlockZ = 64;
inline constexpr std::int64_t kMaxBlockThreads = 1024;
inline constexpr std::int64_t kMaxSharedBytes = 232448;  // 227 KiB: 9.0, 10.0

/// `values`: those of the kernel's symbols, then the launch arguments.
/// Errors: kInvalidArgument, "grid.y is 70000; CUDA allows 1 to 65535".
[[nodiscard]] Result<Geometry> evaluate_geometry(const EntryGeometry& declared,
                                                 std::span<const Value> values);

}  // namespace kiln::render
