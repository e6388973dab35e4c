// Occupancy: how many blocks of a function run at a time.

#include <algorithm>

#include "tests/support/simulated_driver/abi_functions.h"
#include "tests/support/simulated_driver/function_attributes.h"

using kiln::simulated::kMaxThreadsPerBlock;
using kiln::simulated::kWarpSize;

namespace {

/// `tell(function, model)` for a function or kernel, in the current context.
template <typename Tell>
CUresult of_function(const char* symbol, CUfunction function, bool is_asked_well,
                     const Tell& tell) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    if (!is_asked_well)
      return CUDA_ERROR_INVALID_VALUE;
    const auto handle = simulator.function_of(function, simulator.current_handle());
    if (!handle)
      return handle.error();
    const Function& found = *simulator.functions.find(*handle);
    return tell(found, simulator.device_of(found.context).model);
  });
}

bool is_block(int threads) {
  return threads >= 1 && threads <= kMaxThreadsPerBlock;
}

CUresult blocks_at_once(const char* symbol, int* blocks, CUfunction function,
                        int threads, std::size_t dynamic_shared_bytes) {
  return of_function(symbol, function, blocks != nullptr && is_block(threads),
                     [&](const Function& found, const DeviceModel& model) {
                       *blocks = occupancy(model, *found.entry, threads,
                                           dynamic_shared_bytes);
                       return CUDA_SUCCESS;
                     });
}

/// Of whatever block of at most `limit` threads, 0 for any.
struct AnyBlock {
  CUoccupancyB2DSize shared_bytes_of = nullptr;
  std::size_t dynamic_shared_bytes = 0;  // where that is null
  int limit = 0;
};

/// The largest of the blocks with which most threads run.
CUresult best_block(const char* symbol, int* grid, int* block, CUfunction function,
                    const AnyBlock& any) {
  const bool is_good = grid != nullptr && block != nullptr && any.limit >= 0;
  return of_function(
      symbol, function, is_good, [&](const Function& found, const DeviceModel& model) {
        const int most = max_threads(*found.entry);
        int best = 0;
        for (int threads = any.limit == 0 ? most : std::min(any.limit, most);
             threads > 0; threads = (threads - 1) / kWarpSize * kWarpSize) {
          const std::size_t shared = any.shared_bytes_of == nullptr
                                         ? any.dynamic_shared_bytes
                                         : any.shared_bytes_of(threads);
          const int blocks = occupancy(model, *found.entry, threads, shared);
          if (blocks * threads <= best)
            continue;
          best = blocks * threads;
          *block = threads;
          *grid = blocks * model.multiprocessors;
        }
        return best == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
      });
}

int cluster_blocks(const CUlaunchConfig& config) {
  unsigned blocks = 1;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const auto& shape = config.attrs[i].value.clusterDim;
    if (config.attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      blocks = std::max(shape.x * shape.y * shape.z, 1U);
  }
  return static_cast<int>(blocks);
}

CUresult clusters(const char* symbol, int* out, CUfunction function,
                  const CUlaunchConfig* config,
                  int (*count)(const Function&, const DeviceModel&,
                               const CUlaunchConfig&)) {
  return of_function(symbol, function, out != nullptr && config != nullptr,
                     [&](const Function& found, const DeviceModel& model) {
                       if (model.capability.major < 9)
                         return CUDA_ERROR_NOT_SUPPORTED;
                       *out = count(found, model, *config);
                       return CUDA_SUCCESS;
                     });
}

}  // namespace

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                     int threads,
                                                     std::size_t dynamic_shared_bytes) {
  return blocks_at_once(__func__, blocks, function, threads, dynamic_shared_bytes);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, CUfunction function, int threads, std::size_t dynamic_shared_bytes,
    unsigned /*flags*/) {
  return blocks_at_once(__func__, blocks, function, threads, dynamic_shared_bytes);
}

// The driver has its parameters. NOLINTBEGIN(readability-function-size)
CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction function,
                                          CUoccupancyB2DSize shared_bytes_of,
                                          std::size_t dynamic_shared_bytes, int limit) {
  return best_block(__func__, grid, block, function,
                    {shared_bytes_of, dynamic_shared_bytes, limit});
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block,
                                                   CUfunction function,
                                                   CUoccupancyB2DSize shared_bytes_of,
                                                   std::size_t dynamic_shared_bytes,
                                                   int limit, unsigned /*flags*/) {
  return best_block(__func__, grid, block, function,
                    {shared_bytes_of, dynamic_shared_bytes, limit});
}
// NOLINTEND(readability-function-size)

CUresult cuOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes,
                                                 CUfunction function, int blocks,
                                                 int threads) {
  return of_function(
      __func__, function, bytes != nullptr && blocks > 0 && is_block(threads),
      [&](const Function& found, const DeviceModel& model) {
        if (occupancy(model, *found.entry, threads, 0) < blocks)
          return CUDA_ERROR_INVALID_VALUE;
        const int share = model.shared_kib_per_multiprocessor * 1024 / blocks -
                          reserved_shared_bytes(model);
        const int most = std::min(share, model.shared_kib_per_block_optin * 1024);
        *bytes = static_cast<std::size_t>(
            std::max(0, most - static_cast<int>(found.entry->static_shared_bytes)));
        return CUDA_SUCCESS;
      });
}

CUresult cuOccupancyMaxPotentialClusterSize(int* blocks, CUfunction function,
                                            const CUlaunchConfig* config) {
  return clusters(__func__, blocks, function, config,
                  [](const Function& found, const DeviceModel&, const CUlaunchConfig&) {
                    return found.settings.allows_large_clusters != 0 ? 16 : 8;
                  });
}

CUresult cuOccupancyMaxActiveClusters(int* count, CUfunction function,
                                      const CUlaunchConfig* config) {
  return clusters(
      __func__, count, function, config,
      [](const Function& found, const DeviceModel& model, const CUlaunchConfig& asked) {
        const auto threads =
            static_cast<int>(asked.blockDimX * asked.blockDimY * asked.blockDimZ);
        return occupancy(model, *found.entry, threads, asked.sharedMemBytes) *
               model.multiprocessors / cluster_blocks(asked);
      });
}
