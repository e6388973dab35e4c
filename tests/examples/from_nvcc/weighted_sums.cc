#include "weighted_sums.h"

#include <cuda.h>

#include <cstdint>
#include <utility>

#include "kernels.h"               // kiln_embed() writes it
#include "kernels/detail/sizes.h"  // the kernel includes it as well

namespace {

constexpr const char* kOfFloats = "weighted_sums<float, kThreads>";
constexpr const char* kOfHalves = "weighted_sums<__half, kThreads>";

}  // namespace

kiln::Result<WeightedSums> WeightedSums::open(kiln::Service& service,
                                              const kiln::Device& device) {
  kiln::SourceOptions source = weighted::kernels::weighted_sums_cu();
  source.options = {"-default-device"};  // ceil_div() has no __host__ __device__
  source.name_expressions = {kOfFloats, kOfHalves, "&weights"};
  const auto kernels =
      service.get(kiln::Request::from_source(std::move(source)), device);
  if (!kernels)
    return tl::unexpected(kernels.error());
  return WeightedSums(*kernels);
}

kiln::Result<void> WeightedSums::set_weights(const std::vector<float>& values) const {
  const auto weights = kernels_.global("&weights");
  if (!weights)
    return tl::unexpected(weights.error());
  const std::size_t bytes = values.size() * sizeof(float);
  if (bytes > weights->bytes)
    return tl::unexpected(
        kiln::Error{kiln::ErrorCode::kInvalidArgument, "too many weights"});
  if (cuMemcpyHtoD(weights->address, values.data(), bytes) != CUDA_SUCCESS)
    return tl::unexpected(kiln::Error{kiln::ErrorCode::kDevice, "cuMemcpyHtoD failed"});
  return {};
}

kiln::Result<void> WeightedSums::run(float* sums, const void* in, Element element,
                                     float scale, int rows, int columns,
                                     CUstream_st* stream) const {
  const auto kernel = kernels_.entry(element == Element::kHalf ? kOfHalves : kOfFloats);
  if (!kernel)
    return tl::unexpected(kernel.error());
  kiln::Geometry geometry;
  geometry.grid[0] = static_cast<std::uint32_t>(rows);
  geometry.block[0] = kThreads;
  return kernel->launch(geometry, stream, sums, in, scale, columns);
}
