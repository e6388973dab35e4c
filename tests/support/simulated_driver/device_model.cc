#include "tests/support/simulated_driver/device_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>

#include "tests/support/simulated_driver/fits.h"

namespace kiln::simulated {
namespace {

constexpr std::size_t kGib = std::size_t{1} << 30U;

// Of each capability the best known part; unknown ones are like the last row that is
// not newer.
constexpr std::array<DeviceModel, 14> kModels{{
    {{5, 0}, 5, 2048, 32, 64, 48, 2, 1'124'000, 2 * kGib},
    {{6, 0}, 56, 2048, 32, 64, 48, 4, 1'328'500, 16 * kGib},
    {{7, 0}, 80, 2048, 32, 96, 96, 6, 1'380'000, 16 * kGib},
    {{7, 5}, 40, 1024, 16, 64, 64, 4, 1'590'000, 15 * kGib},
    {{8, 0}, 108, 2048, 32, 164, 163, 40, 1'410'000, 80 * kGib},
    {{8, 6}, 84, 1536, 16, 100, 99, 6, 1'695'000, 24 * kGib},
    {{8, 7}, 16, 1536, 16, 164, 163, 4, 1'300'000, 30 * kGib},
    {{8, 9}, 142, 1536, 24, 100, 99, 96, 2'520'000, 44 * kGib},
    {{9, 0}, 132, 2048, 32, 228, 227, 60, 1'980'000, 150'754'820'096},
    {{10, 0}, 148, 2048, 32, 228, 227, 126, 1'965'000, 178 * kGib},
    {{10, 3}, 148, 2048, 32, 228, 227, 126, 2'032'000, 268 * kGib},
    {{11, 0}, 20, 1536, 24, 228, 227, 32, 1'575'000, 122 * kGib},
    {{12, 0}, 170, 1536, 24, 100, 99, 96, 2'407'000, 31 * kGib},
    {{12, 1}, 48, 1536, 24, 100, 99, 24, 2'418'000, 119 * kGib},
}};

int round_up(int value, int unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

DeviceModel model_of(Capability capability) {
  DeviceModel model = kModels.front();
  for (const DeviceModel& row : kModels) {
    if (row.capability <= capability)
      model = row;
  }
  model.capability = capability;
  return model;
}

int reserved_shared_bytes(const DeviceModel& model) {
  return model.capability.major >= 8 ? 1024 : 0;
}

std::string pci_bus_id(int ordinal) {
  return fmt::format("0000:{:02x}:00.0", ordinal + 1);
}

#define KILN_ATTRIBUTE(name, value) \
  case CU_DEVICE_ATTRIBUTE_##name:  \
    return value
// NOLINTNEXTLINE(readability-function-size): one row an attribute
std::optional<int> attribute(const DeviceModel& model, int ordinal,
                             CUdevice_attribute which) {
  constexpr int kLastKnown = 160;  // of a newer cuda.h than this was written with
  // Not every cuda.h has these.
  constexpr int kHostNumaMemoryPoolsSupported = 142;
  constexpr int kHostMemoryPoolsSupported = 144;
  if (which == kHostNumaMemoryPoolsSupported || which == kHostMemoryPoolsSupported)
    return 1;
  const bool is_hopper_or_later = model.capability.major >= 9;
  switch (which) {
    KILN_ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR, model.capability.major);
    KILN_ATTRIBUTE(COMPUTE_CAPABILITY_MINOR, model.capability.minor);
    KILN_ATTRIBUTE(MULTIPROCESSOR_COUNT, model.multiprocessors);
    KILN_ATTRIBUTE(WARP_SIZE, kWarpSize);
    KILN_ATTRIBUTE(MAX_THREADS_PER_BLOCK, kMaxThreadsPerBlock);
    KILN_ATTRIBUTE(MAX_BLOCK_DIM_X, kMaxThreadsPerBlock);
    KILN_ATTRIBUTE(MAX_BLOCK_DIM_Y, kMaxThreadsPerBlock);
    KILN_ATTRIBUTE(MAX_BLOCK_DIM_Z, 64);
    KILN_ATTRIBUTE(MAX_GRID_DIM_X, INT_MAX);
    KILN_ATTRIBUTE(MAX_GRID_DIM_Y, 65535);
    KILN_ATTRIBUTE(MAX_GRID_DIM_Z, 65535);
    KILN_ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK, kDefaultSharedBytes);
    KILN_ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                   model.shared_kib_per_block_optin * 1024);
    KILN_ATTRIBUTE(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
                   model.shared_kib_per_multiprocessor * 1024);
    KILN_ATTRIBUTE(RESERVED_SHARED_MEMORY_PER_BLOCK, reserved_shared_bytes(model));
    KILN_ATTRIBUTE(MAX_REGISTERS_PER_BLOCK, kRegistersPerBlock);
    KILN_ATTRIBUTE(MAX_REGISTERS_PER_MULTIPROCESSOR, kRegistersPerBlock);
    KILN_ATTRIBUTE(MAX_BLOCKS_PER_MULTIPROCESSOR, model.blocks_per_multiprocessor);
    KILN_ATTRIBUTE(MAX_THREADS_PER_MULTIPROCESSOR, model.threads_per_multiprocessor);
    KILN_ATTRIBUTE(CLOCK_RATE, model.clock_khz);
    KILN_ATTRIBUTE(MEMORY_CLOCK_RATE, 3'201'000);
    KILN_ATTRIBUTE(GLOBAL_MEMORY_BUS_WIDTH, 5120);
    KILN_ATTRIBUTE(L2_CACHE_SIZE, model.l2_mib << 20);
    KILN_ATTRIBUTE(TOTAL_CONSTANT_MEMORY, 65536);
    KILN_ATTRIBUTE(MAX_PITCH, INT_MAX);
    KILN_ATTRIBUTE(TEXTURE_ALIGNMENT, 512);
    KILN_ATTRIBUTE(ASYNC_ENGINE_COUNT, 3);
    KILN_ATTRIBUTE(INTEGRATED, is_tegra(model.capability) ? 1 : 0);
    KILN_ATTRIBUTE(PCI_BUS_ID, ordinal + 1);
    KILN_ATTRIBUTE(PCI_DEVICE_ID, 0);
    KILN_ATTRIBUTE(PCI_DOMAIN_ID, 0);
    KILN_ATTRIBUTE(SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO,
                   model.capability.minor == 0 ? 2 : 64);
    KILN_ATTRIBUTE(CAN_MAP_HOST_MEMORY, 1);
    KILN_ATTRIBUTE(CONCURRENT_KERNELS, 1);
    KILN_ATTRIBUTE(UNIFIED_ADDRESSING, 1);
    KILN_ATTRIBUTE(MANAGED_MEMORY, 1);
    KILN_ATTRIBUTE(CONCURRENT_MANAGED_ACCESS, 1);
    KILN_ATTRIBUTE(STREAM_PRIORITIES_SUPPORTED, 1);
    KILN_ATTRIBUTE(GLOBAL_L1_CACHE_SUPPORTED, 1);
    KILN_ATTRIBUTE(LOCAL_L1_CACHE_SUPPORTED, 1);
    KILN_ATTRIBUTE(COMPUTE_PREEMPTION_SUPPORTED, 1);
    KILN_ATTRIBUTE(COOPERATIVE_LAUNCH, 1);
    KILN_ATTRIBUTE(HOST_REGISTER_SUPPORTED, 1);
    KILN_ATTRIBUTE(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1);
    KILN_ATTRIBUTE(MEMORY_POOLS_SUPPORTED, 1);
    KILN_ATTRIBUTE(GPU_OVERLAP, 1);
    KILN_ATTRIBUTE(CLUSTER_LAUNCH, is_hopper_or_later ? 1 : 0);
    KILN_ATTRIBUTE(TENSOR_MAP_ACCESS_SUPPORTED, is_hopper_or_later ? 1 : 0);
    KILN_ATTRIBUTE(UNIFIED_FUNCTION_POINTERS, is_hopper_or_later ? 1 : 0);
    KILN_ATTRIBUTE(MEM_SYNC_DOMAIN_COUNT, is_hopper_or_later ? 4 : 1);
    default:
      return which >= 1 && which <= kLastKnown ? std::optional<int>(0) : std::nullopt;
  }
}

#undef KILN_ATTRIBUTE

int occupancy(const DeviceModel& model, const EntryPoint& entry, int threads,
              std::size_t dynamic_shared_bytes) {
  constexpr int kRegisterUnit = 256;  // a warp
  constexpr std::size_t kSharedUnit = 128;
  const int warps = round_up(threads, kWarpSize) / kWarpSize;
  const int registers =
      warps * round_up(static_cast<int>(entry.registers) * kWarpSize, kRegisterUnit);
  const std::size_t shared =
      (entry.static_shared_bytes + dynamic_shared_bytes +
       static_cast<std::size_t>(reserved_shared_bytes(model)) + kSharedUnit - 1) /
      kSharedUnit * kSharedUnit;
  const auto all_shared =
      static_cast<std::size_t>(model.shared_kib_per_multiprocessor) * 1024;
  int blocks = std::min(model.blocks_per_multiprocessor,
                        model.threads_per_multiprocessor / (warps * kWarpSize));
  if (registers > 0)
    blocks = std::min(blocks, kRegistersPerBlock / registers);
  if (shared > 0)
    blocks = std::min(blocks, static_cast<int>(all_shared / shared));
  return blocks;
}

}  // namespace kiln::simulated
