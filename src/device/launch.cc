#include "device/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>

#include "device/context_scope.h"
#include "device/module.h"
#include "device/stream_device.h"
#include "util/try.h"

namespace kiln::device {
namespace {

using Extent = std::array<std::uint32_t, 3>;

constexpr std::string_view kAxes = "xyz";

std::string describe(const Function& function) {
  return fmt::format("kernel {} of {}", function.name(), function.module().label());
}

template <typename... Values>
tl::unexpected<Error> refused(const Function& function,
                              fmt::format_string<Values...> why, Values&&... values) {
  return refuse("{}: {}", describe(function),
                fmt::format(why, std::forward<Values>(values)...));
}

// As driver_result(). A launch takes microseconds, so nothing is formatted unless it
// failed.
Result<void> done(const Function& function, CUresult result, std::string_view call) {
  if (result == CUDA_SUCCESS)
    return {};
  return driver_error(function.module().context().driver().table(), result, call,
                      describe(function));
}

std::uint64_t volume(const Extent& extent) {
  return std::uint64_t{extent[0]} * extent[1] * extent[2];
}

Result<void> check_arguments(const Function& function, std::span<void* const> arguments,
                             std::span<const std::size_t> sizes) {
  if (arguments.size() != sizes.size())
    return refused(function, "{} arguments with {} sizes", arguments.size(),
                   sizes.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == nullptr)  // the driver would read there
      return refused(
          function,
          "argument {} (counted from 0) is null: give the address of its value", i);
  }
  if (!function.parameters())
    return {};
  const std::vector<std::size_t>& expected = *function.parameters();
  if (expected.size() != sizes.size())
    return refused(function, "it takes {} arguments, of {} bytes, and {} were given",
                   expected.size(), fmt::join(expected, ", "), sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != expected[i])
      return refused(
          function,
          "argument {} (counted from 0) takes {} bytes, and a value of {} was given", i,
          expected[i], sizes[i]);
  }
  return {};
}

// A 0 passes: check_block() and launch() handle it.
Result<void> check_extent(const Function& function, std::string_view what,
                          const Extent& extent, const Extent& limit) {
  for (std::size_t i = 0; i < extent.size(); ++i) {
    if (extent[i] > limit[i])
      return refused(function, "{}.{} is {}, and the device's limit is {}", what,
                     kAxes[i], extent[i], limit[i]);
  }
  return {};
}

Result<void> check_block(const Function& function, const Extent& block) {
  const std::uint64_t threads = volume(block);
  if (threads == 0)
    return refused(function, "a block of {} x {} x {} threads has no thread", block[0],
                   block[1], block[2]);
  const std::uint32_t limit = function.attributes().max_threads_per_block;
  if (threads > limit)
    return refused(function,
                   "a block of {} x {} x {} threads has {}, and the limit of the "
                   "kernel's registers and launch bounds is {}",
                   block[0], block[1], block[2], threads, limit);
  return {};
}

Result<void> check_shared(const Function& function, std::uint32_t bytes) {
  const FunctionAttributes& attributes = function.attributes();
  if (bytes > attributes.max_dynamic_shared_bytes)
    return refused(function,
                   "{} bytes of dynamic shared memory, and the limit is {}: the "
                   "device's {} a block, less {} of static shared memory",
                   bytes, attributes.max_dynamic_shared_bytes,
                   function.module().context().limits().shared_optin_bytes,
                   attributes.static_shared_bytes);
  return {};
}

bool has_clusters(const Geometry& geometry) {
  return geometry.cluster != Extent{1, 1, 1};
}

Result<void> check_cluster(const Function& function, const Geometry& geometry) {
  constexpr ComputeCapability kFirst{9, 0};
  const ComputeCapability capability = function.module().context().device().capability;
  if (capability < kFirst)
    return refused(
        function, "clusters need compute capability {} or later, and this device is {}",
        to_string(kFirst), to_string(capability));
  for (std::size_t i = 0; i < geometry.cluster.size(); ++i) {
    if (geometry.cluster[i] == 0 || geometry.grid[i] % geometry.cluster[i] != 0)
      return refused(function, "grid.{0} is {1}, no multiple of cluster.{0}, {2}",
                     kAxes[i], geometry.grid[i], geometry.cluster[i]);
  }
  return {};
}

bool has_preferred(const Geometry& geometry) {
  return geometry.preferred_cluster != Extent{0, 0, 0};
}

Result<void> check_preferred(const Function& function, const Geometry& geometry) {
  for (std::size_t i = 0; i < geometry.cluster.size(); ++i) {
    const std::uint32_t preferred = geometry.preferred_cluster[i];
    if (preferred == 0 || geometry.cluster[i] == 0 ||
        preferred % geometry.cluster[i] != 0 || geometry.grid[i] % preferred != 0)
      return refused(function,
                     "preferred_cluster.{0} is {1}: it must be a multiple of "
                     "cluster.{0}, {2}, and divide grid.{0}, {3}",
                     kAxes[i], preferred, geometry.cluster[i], geometry.grid[i]);
  }
  return {};
}

/// Of the hints, those that the device and the driver know.
Geometry known_here(const Function& function, Geometry geometry) {
  constexpr CudaVersion kPreferredSince{12, 8};
  const PrimaryContext& context = function.module().context();
  const ComputeCapability capability = context.device().capability;
  if (context.driver().table().cuLaunchKernelEx == nullptr) {
    geometry.programmatic = false;
    geometry.priority.reset();
  }
  if (capability < ComputeCapability{9, 0})
    geometry.programmatic = false;
  if (capability < ComputeCapability{10, 0} ||
      context.driver().version() < kPreferredSince)
    geometry.preferred_cluster = {0, 0, 0};
  return geometry;
}

// Checks that the device has what the attributes ask for, and the driver the call.
Result<void> check_launch_attributes(const Function& function,
                                     const Geometry& geometry) {
  const PrimaryContext& context = function.module().context();
  if (has_clusters(geometry))
    KILN_TRY(check_cluster(function, geometry));
  if (geometry.cooperative && !context.limits().has_cooperative_launch)
    return refused(function, "the device has no cooperative launch");
  if (context.driver().table().cuLaunchKernelEx == nullptr)
    return fail(ErrorCode::kUnavailable,
                "{}: clusters and cooperative launches need a driver for CUDA 11.8 or "
                "later, and this driver is for {}; install a newer driver",
                describe(function), to_string(context.driver().version()));
  return {};
}

bool has_hints(const Geometry& geometry) {
  return geometry.programmatic || geometry.priority || has_preferred(geometry);
}

bool needs_attributes(const Geometry& geometry) {
  return geometry.cooperative || has_clusters(geometry) || has_hints(geometry);
}

Result<void> check_geometry(const Function& function, const Geometry& geometry) {
  const LaunchLimits& limits = function.module().context().limits();
  KILN_TRY(check_extent(function, "grid", geometry.grid, limits.grid));
  KILN_TRY(check_extent(function, "block", geometry.block, limits.block));
  KILN_TRY(check_block(function, geometry.block));
  KILN_TRY(check_shared(function, geometry.shared_bytes));
  if (has_preferred(geometry))
    KILN_TRY(check_preferred(function, geometry));
  if (geometry.cooperative || has_clusters(geometry))
    KILN_TRY(check_launch_attributes(function, geometry));
  return {};
}

// The kernel's context is current; `before` was current before it.
Result<void> check_stream(const Function& function, CUstream stream, CUcontext before) {
  const StreamFit fit = fit_of(function.module().context(), stream, before);
  KILN_TRY(done(function, fit.result, "cuStreamGetCtx"));
  if (!fit.why_not.empty())
    return refused(function, "{}", fit.why_not);
  return {};
}

// Opts in to large shared memory and large clusters, once per function.
Result<void> prepare(const Function& function, const Geometry& geometry) {
  constexpr std::uint64_t kPortableCluster = 8;
  const std::uint64_t shared_bytes =
      std::uint64_t{function.attributes().static_shared_bytes} + geometry.shared_bytes;
  if (shared_bytes > function.module().context().limits().shared_bytes)
    KILN_TRY(function.allow_large_shared_memory());
  if (std::max(volume(geometry.cluster), volume(geometry.preferred_cluster)) >
      kPortableCluster)
    KILN_TRY(function.allow_large_clusters());
  return {};
}

CUresult launch_with_attributes(const Function& function, const Geometry& geometry,
                                CUstream stream, void** arguments) {
  std::array<CUlaunchAttribute, 5> attributes{};
  CUlaunchConfig config{};
  config.gridDimX = geometry.grid[0];
  config.gridDimY = geometry.grid[1];
  config.gridDimZ = geometry.grid[2];
  config.blockDimX = geometry.block[0];
  config.blockDimY = geometry.block[1];
  config.blockDimZ = geometry.block[2];
  config.sharedMemBytes = geometry.shared_bytes;
  config.hStream = stream;
  config.attrs = attributes.data();
  const auto add = [&](CUlaunchAttributeID id) -> CUlaunchAttributeValue& {
    CUlaunchAttribute& added = attributes[config.numAttrs++];
    added.id = id;
    return added.value;
  };
  const auto extent =
      [](const Extent& of) -> decltype(CUlaunchAttributeValue::clusterDim) {
    return {of[0], of[1], of[2]};
  };
  // A preferred cluster takes effect only beside a cluster.
  if (has_clusters(geometry) || has_preferred(geometry))
    add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim = extent(geometry.cluster);
  if (geometry.cooperative)
    add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
  if (geometry.programmatic)
    add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        .programmaticStreamSerializationAllowed = 1;
  if (geometry.priority)
    add(CU_LAUNCH_ATTRIBUTE_PRIORITY).priority = *geometry.priority;
  // CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, which headers before CUDA 12.8
  // lack; its value has the layout of clusterDim.
  if (has_preferred(geometry))
    add(static_cast<CUlaunchAttributeID>(11)).clusterDim =
        extent(geometry.preferred_cluster);
  return function.module().context().driver().table().cuLaunchKernelEx(
      &config, function.handle(), arguments, nullptr);
}

/// `geometry` has no hint that is unknown here.
Result<void> submit(const Function& function, const Geometry& geometry, CUstream stream,
                    std::span<void* const> arguments) {
  // The driver only reads them.
  auto* const values = const_cast<void**>(arguments.data());
  if (needs_attributes(geometry))
    return done(function, launch_with_attributes(function, geometry, stream, values),
                "cuLaunchKernelEx");
  const auto& [grid, block] = std::tie(geometry.grid, geometry.block);
  const DriverTable& driver = function.module().context().driver().table();
  return done(function,
              driver.cuLaunchKernel(function.handle(), grid[0], grid[1], grid[2],
                                    block[0], block[1], block[2], geometry.shared_bytes,
                                    stream, values, nullptr),
              "cuLaunchKernel");
}

}  // namespace

Result<void> launch_again(const Function& function, const Geometry& geometry,
                          CUstream_st* stream, std::span<void* const> arguments) {
  return submit(function,
                has_hints(geometry) ? known_here(function, geometry) : geometry, stream,
                arguments);
}

Result<void> launch(const Function& function, const Geometry& geometry,
                    CUstream_st* stream, std::span<void* const> arguments,
                    std::span<const std::size_t> sizes) {
  KILN_TRY(check_arguments(function, arguments, sizes));
  KILN_TRY(check_geometry(function, geometry));
  if (volume(geometry.grid) == 0)
    return {};
  const ContextScope scope(function.module().context());
  KILN_TRY(done(function, scope.result(), scope.call()));
  KILN_TRY(check_stream(function, stream, scope.before()));
  const Geometry known =
      has_hints(geometry) ? known_here(function, geometry) : geometry;
  KILN_TRY(prepare(function, known));
  return submit(function, known, stream, arguments);
}

}  // namespace kiln::device
