// Launches: checked as the driver checks them, recorded, and run where a test has said
// how.

#include <algorithm>
#include <array>
#include <climits>
#include <vector>

#include "tests/support/simulated_driver/abi_functions.h"
#include "tests/support/simulated_driver/capture.h"
#include "tests/support/simulated_driver/function_attributes.h"

using kiln::simulated::Computation;
using kiln::simulated::EntryPoint;
using kiln::simulated::Extent;
using kiln::simulated::HostKernel;

namespace {

std::uint64_t volume(const Extent& extent) {
  return std::uint64_t{extent[0]} * extent[1] * extent[2];
}

bool is_within(const Extent& extent, const Extent& limit) {
  for (std::size_t i = 0; i < extent.size(); ++i) {
    if (extent[i] == 0 || extent[i] > limit[i])
      return false;
  }
  return true;
}

CUresult check_shape(const Request& request, const Function& function) {
  constexpr Extent kLargestGrid{INT_MAX, 65535, 65535};
  constexpr Extent kLargestBlock{1024, 1024, 64};
  const bool has_both = request.parameters != nullptr && request.extra != nullptr;
  if (has_both || !is_within(request.grid, kLargestGrid) ||
      !is_within(request.block, kLargestBlock) ||
      volume(request.block) > kiln::simulated::kMaxThreadsPerBlock)
    return CUDA_ERROR_INVALID_VALUE;
  const int most =
      kiln::simulated::max_dynamic_shared_bytes(*function.entry, function.settings);
  if (request.dynamic_shared_bytes > static_cast<unsigned>(most))
    return CUDA_ERROR_INVALID_VALUE;
  if (static_cast<int>(volume(request.block)) >
      kiln::simulated::max_threads(*function.entry))
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  return CUDA_SUCCESS;
}

CUresult check_cluster(const Request& request, const Function& function,
                       const DeviceModel& model) {
  constexpr std::uint64_t kPortable = 8;
  constexpr std::uint64_t kLargest = 16;
  if (request.cluster == Extent{})
    return CUDA_SUCCESS;
  if (model.capability.major < 9)
    return CUDA_ERROR_NOT_SUPPORTED;
  for (std::size_t i = 0; i < request.cluster.size(); ++i) {
    if (request.cluster[i] == 0 || request.grid[i] % request.cluster[i] != 0)
      return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t most =
      function.settings.allows_large_clusters != 0 ? kLargest : kPortable;
  return volume(request.cluster) > most ? CUDA_ERROR_INVALID_CLUSTER_SIZE
                                        : CUDA_SUCCESS;
}

/// The driver's documentation: a multiple of the cluster that divides the grid.
CUresult check_preferred(const Request& request) {
  for (std::size_t i = 0; i < request.grid.size(); ++i) {
    const unsigned preferred = request.preferred_cluster[i];
    const unsigned least = std::max(request.cluster[i], 1U);
    if (preferred != 0 && (preferred % least != 0 || request.grid[i] % preferred != 0))
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult check_cooperative(const Request& request, const Function& function,
                           const DeviceModel& model) {
  if (!request.is_cooperative)
    return CUDA_SUCCESS;
  const int blocks = kiln::simulated::occupancy(model, *function.entry,
                                                static_cast<int>(volume(request.block)),
                                                request.dynamic_shared_bytes);
  const auto together = static_cast<std::uint64_t>(blocks) *
                        static_cast<std::uint64_t>(model.multiprocessors);
  return volume(request.grid) > together ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
                                         : CUDA_SUCCESS;
}

CUresult check(const Request& request, const Function& function,
               const DeviceModel& model) {
  CUresult result = check_shape(request, function);
  if (result == CUDA_SUCCESS)
    result = check_cluster(request, function, model);
  if (result == CUDA_SUCCESS)
    result = check_preferred(request);
  if (result == CUDA_SUCCESS)
    result = check_cooperative(request, function, model);
  return result;
}

// The function to launch: one of the current context, on a stream of the same one. A
// kernel of a library goes to the stream's.
tl::expected<Function*, CUresult> function_for(Simulator& simulator,
                                               const Request& request,
                                               const Stream& stream) {
  const bool is_kernel =
      simulator.kernels.find(reinterpret_cast<CUkernel>(request.function)) != nullptr;
  const auto handle = simulator.function_of(request.function, stream.context);
  if (!handle)
    return tl::unexpected(handle.error());
  Function* const function = simulator.functions.find(*handle);
  const bool is_elsewhere =
      stream.context != function->context ||
      (!is_kernel && function->context != simulator.current_handle());
  if (is_elsewhere)
    return tl::unexpected(CUDA_ERROR_INVALID_HANDLE);
  if (const CUresult lost = simulator.contexts.find(function->context)->lost;
      lost != CUDA_SUCCESS)
    return tl::unexpected(lost);
  return function;
}

struct Accepted {
  kiln_simulated_launch record{};
  HostKernel host;
  std::vector<std::size_t> sizes{};          // of the parameters, for host.run_any
  std::optional<Computation> computation{};  // where no host kernel stands in
};

/// What runs in the place of a kernel that is launched and not captured.
void find_host_kernel(const Simulator& simulator, const EntryPoint& entry,
                      Accepted& accepted) {
  const auto own = simulator.host_kernels.find(entry.name);
  accepted.host =
      own == simulator.host_kernels.end() ? simulator.any_kernel : own->second;
  if (accepted.host.run_any == nullptr)
    return;
  for (const auto& parameter : entry.parameters)
    accepted.sizes.push_back(parameter.size);
}

CUresult run_on_host(const Accepted& accepted, void** parameters) {
  if (accepted.computation) {
    kiln::simulated::compute(*accepted.computation);
    return CUDA_SUCCESS;
  }
  const HostKernel& host = accepted.host;
  if (host.run != nullptr)
    host.run(&accepted.record, parameters, host.user);
  if (host.run_any == nullptr)
    return CUDA_SUCCESS;
  return static_cast<CUresult>(host.run_any(&accepted.record, parameters,
                                            accepted.sizes.data(),
                                            accepted.sizes.size(), host.user));
}

CUresult accept(Simulator& simulator, const Request& request, Accepted& accepted) {
  Stream* const stream = simulator.stream(request.stream);
  if (stream == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  const auto function = function_for(simulator, request, *stream);
  if (!function)
    return function.error();
  const Device& device = simulator.device_of((*function)->context);
  if (const CUresult refused = check(request, **function, device.model);
      refused != CUDA_SUCCESS)
    return refused;
  if (const CUresult refused = admit_work(simulator, *stream); refused != CUDA_SUCCESS)
    return refused;
  (*function)->is_loaded = true;
  kiln_simulated_launch& record = accepted.record;
  record.function = simulator.intern((*function)->entry->name);
  record.image = simulator.intern((*function)->image->sha256);
  record.device = device.ordinal;
  std::copy(request.grid.begin(), request.grid.end(), record.grid);
  std::copy(request.block.begin(), request.block.end(), record.block);
  std::copy(request.cluster.begin(), request.cluster.end(), record.cluster);
  record.dynamic_shared_bytes = request.dynamic_shared_bytes;
  record.stream = request.stream;
  record.is_cooperative = request.is_cooperative ? 1 : 0;
  record.is_programmatic = request.is_programmatic ? 1 : 0;
  record.has_priority = request.priority ? 1 : 0;
  record.priority = request.priority.value_or(0);
  std::ranges::copy(request.preferred_cluster, record.preferred_cluster);
  record.is_captured = stream->capture ? 1 : 0;
  record.is_repeated = request.is_repeated ? 1 : 0;
  if (stream->capture)
    add_captured(simulator, *stream, keep(request, *(*function)->entry));
  simulator.launches.push_back(record);
  if (stream->capture)
    return CUDA_SUCCESS;
  find_host_kernel(simulator, *(*function)->entry, accepted);
  const bool stands_in =
      accepted.host.run != nullptr || accepted.host.run_any != nullptr;
  if (stands_in || !simulator.settings.computing.is_on)
    return CUDA_SUCCESS;
  auto computation = prepare_computation(simulator, **function, request, record);
  if (!computation)
    return computation.error();
  accepted.computation = *std::move(computation);
  return CUDA_SUCCESS;
}

CUresult launch(const char* symbol, const Request& request) {
  Accepted accepted;
  const CUresult result = enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    return accept(simulator, request, accepted);
  });
  // Outside the lock: it may take long, and may call the driver.
  return result == CUDA_SUCCESS ? run_on_host(accepted, request.parameters) : result;
}

}  // namespace

namespace kiln::simulated {

void** KernelWork::parameters() {
  pointers.clear();
  for (auto& value : values) pointers.push_back(value.data());
  return pointers.empty() ? nullptr : pointers.data();
}

KernelWork keep(const Request& request, const EntryPoint& entry) {
  KernelWork kept{.request = request};
  const std::byte* buffer = nullptr;  // of all parameters, in request.extra
  for (void** each = request.extra; each != nullptr && *each != CU_LAUNCH_PARAM_END;
       each += 2) {
    if (*each == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer = static_cast<const std::byte*>(each[1]);
  }
  for (std::size_t i = 0; i < entry.parameters.size(); ++i) {
    const Parameter& parameter = entry.parameters[i];
    const std::byte* value = nullptr;
    if (buffer != nullptr)
      value = buffer + parameter.offset;
    else if (request.parameters != nullptr)
      value = static_cast<const std::byte*>(request.parameters[i]);
    if (value != nullptr)
      kept.values.emplace_back(value, value + parameter.size);
  }
  kept.request.stream = nullptr;
  kept.request.parameters = nullptr;
  kept.request.extra = nullptr;
  return kept;
}

tl::expected<KernelWork, CUresult> check_and_keep(Simulator& simulator,
                                                  const Request& request) {
  const auto handle =
      simulator.function_of(request.function, simulator.current_handle());
  if (!handle)
    return tl::unexpected(handle.error());
  const Function& function = *simulator.functions.find(*handle);
  if (const CUresult refused =
          check(request, function, simulator.device_of(function.context).model);
      refused != CUDA_SUCCESS)
    return tl::unexpected(refused);
  return keep(request, *function.entry);
}

tl::expected<std::function<CUresult()>, CUresult> prepare(Simulator& simulator,
                                                          const KernelWork& work,
                                                          CUstream stream) {
  const auto kept = std::make_shared<KernelWork>(work);
  kept->request.stream = stream;
  kept->request.is_repeated = true;
  kept->request.parameters = kept->parameters();
  Accepted accepted;
  const CUresult result = accept(simulator, kept->request, accepted);
  if (result != CUDA_SUCCESS)
    return tl::unexpected(result);
  return [kept, accepted] { return run_on_host(accepted, kept->parameters()); };
}

}  // namespace kiln::simulated

namespace {

// CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, of CUDA 12.8.
constexpr auto kPreferredCluster = static_cast<CUlaunchAttributeID>(11);

// False where an attribute is none that a launch may have.
bool read_attributes(const CUlaunchConfig& config, Request& request) {
  if (config.numAttrs != 0 && config.attrs == nullptr)
    return false;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& each = config.attrs[i];
    if (each.id < 0 || each.id > CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
      return false;
    if (each.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
      request.is_cooperative = each.value.cooperative != 0;
    if (each.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      request.is_programmatic = each.value.programmaticStreamSerializationAllowed != 0;
    if (each.id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
      request.priority = each.value.priority;
    if (each.id == kPreferredCluster)
      request.preferred_cluster = {each.value.clusterDim.x, each.value.clusterDim.y,
                                   each.value.clusterDim.z};
    if (each.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      request.cluster = {each.value.clusterDim.x, each.value.clusterDim.y,
                         each.value.clusterDim.z};
  }
  return true;
}

}  // namespace

// The driver has its parameters. NOLINTBEGIN(readability-function-size)
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                        unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned dynamic_shared_bytes,
                        CUstream stream, void** parameters, void** extra) {
  return launch(__func__, {.function = function,
                           .grid = {grid_x, grid_y, grid_z},
                           .block = {block_x, block_y, block_z},
                           .dynamic_shared_bytes = dynamic_shared_bytes,
                           .stream = stream,
                           .parameters = parameters,
                           .extra = extra});
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x,
                                   unsigned grid_y, unsigned grid_z, unsigned block_x,
                                   unsigned block_y, unsigned block_z,
                                   unsigned dynamic_shared_bytes, CUstream stream,
                                   void** parameters) {
  return launch(__func__, {.function = function,
                           .grid = {grid_x, grid_y, grid_z},
                           .block = {block_x, block_y, block_z},
                           .dynamic_shared_bytes = dynamic_shared_bytes,
                           .stream = stream,
                           .is_cooperative = true,
                           .parameters = parameters});
}
// NOLINTEND(readability-function-size)

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                          void** parameters, void** extra) {
  Request request{.function = function, .parameters = parameters, .extra = extra};
  if (config == nullptr || !read_attributes(*config, request))
    return enter(__func__, Needs::kContext,
                 [](Simulator&) { return CUDA_ERROR_INVALID_VALUE; });
  request.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
  request.block = {config->blockDimX, config->blockDimY, config->blockDimZ};
  request.dynamic_shared_bytes = config->sharedMemBytes;
  request.stream = config->hStream;
  return launch(__func__, request);
}
