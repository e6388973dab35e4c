// The devices of this machine, as the CUDA driver reports them.

#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "kiln/export.h"

namespace kiln {

/// {9, 0} for an H100.
struct ComputeCapability {
  int major = 0;
  int minor = 0;
  friend auto operator<=>(const ComputeCapability&, const ComputeCapability&) = default;
};

/// "9.0". Thread-safe.
[[nodiscard]] KILN_EXPORT std::string to_string(ComputeCapability capability);

/// A device, as it was when the service opened. Thread safety: none; a plain value.
struct Device {
  int ordinal = 0;  // the CUDA ordinal; follows CUDA_VISIBLE_DEVICES
  std::string name{};
  ComputeCapability capability;
  std::string uuid{};    // "GPU-" and 8-4-4-4-12 hex digits; "" before driver 11.4
  std::string pci_id{};  // "0000:17:00.0"
  std::uint64_t memory_bytes = 0;  // in total
  int multiprocessors = 0;         // SMs
  /// The most shared memory of a block that opts in, static plus dynamic:
  /// cudaDeviceProp::sharedMemPerBlockOptin. 0: unknown.
  std::int64_t shared_bytes_per_block = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

}  // namespace kiln
