// What a device of a compute capability is like: plausible figures, from the CUDA
// Programming Guide's table of technical specifications where it has them.

#pragma once

#include <optional>
#include <string>

#include "tests/support/simulated_driver/abi.h"
#include "tests/support/simulated_driver/image.h"

namespace kiln::simulated {

struct DeviceModel {
  Capability capability;
  int multiprocessors = 0;
  int threads_per_multiprocessor = 0;
  int blocks_per_multiprocessor = 0;
  int shared_kib_per_multiprocessor = 0;
  int shared_kib_per_block_optin = 0;
  int l2_mib = 0;
  int clock_khz = 0;
  std::size_t memory_bytes = 0;
};

inline constexpr int kDefaultSharedBytes = 48 * 1024;
inline constexpr int kRegistersPerBlock = 65536;
inline constexpr int kMaxThreadsPerBlock = 1024;
inline constexpr int kWarpSize = 32;

[[nodiscard]] DeviceModel model_of(Capability capability);

/// What the system keeps of every block's shared memory.
[[nodiscard]] int reserved_shared_bytes(const DeviceModel& model);

/// nullopt for an attribute that no driver knows. Those that Kiln and its tests have no
/// use for (textures, surfaces) are 0.
[[nodiscard]] std::optional<int> attribute(const DeviceModel& model, int ordinal,
                                           CUdevice_attribute which);

/// "0000:01:00.0" for device 0.
[[nodiscard]] std::string pci_bus_id(int ordinal);

/// Blocks of that shape that are on one multiprocessor at a time; 0 where not one fits.
[[nodiscard]] int occupancy(const DeviceModel& model, const EntryPoint& entry,
                            int threads, std::size_t dynamic_shared_bytes);

}  // namespace kiln::simulated
