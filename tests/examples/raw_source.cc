// CUDA C++ of one's own: the toolkit's headers and CUB are there, and the instances of
// a templated kernel are asked for by name expressions.

#include <fmt/core.h>
#include <kiln/kiln.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace {

constexpr std::uint32_t kThreads = 128;

constexpr const char* kSource = R"cuda(
#include <cub/block/block_reduce.cuh>
#include <cuda_bf16.h>

// sums[r] = the sum of row r of `in`, rows x cols; a block a row.
template <typename T>
__global__ void row_sums(float* sums, const T* in, long long rows, long long cols) {
  using Reduce = cub::BlockReduce<float, THREADS>;
  __shared__ typename Reduce::TempStorage storage;
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    float sum = 0;
    for (long long col = threadIdx.x; col < cols; col += THREADS)
      sum += static_cast<float>(in[row * cols + col]);
    sum = Reduce(storage).Sum(sum);
    if (threadIdx.x == 0)
      sums[row] = sum;
    __syncthreads();  // before `storage` is used again
  }
}
)cuda";

/// Launches the instance `name` of `kernels`.
kiln::Result<void> launch(const kiln::Kernel& kernels, const char* name) {
  const auto kernel = kernels.entry(name);
  if (!kernel)
    return tl::unexpected(kernel.error());

  // Null stands for device memory: without rows, none is read or written.
  float* sums = nullptr;
  const void* in = nullptr;
  const std::int64_t rows = 0;
  const std::int64_t cols = 4096;
  kiln::Geometry geometry;
  geometry.grid[0] =
      static_cast<std::uint32_t>(std::clamp<std::int64_t>(rows, 1, 65535));
  geometry.block[0] = kThreads;
  auto launched = kernel->launch(geometry, nullptr, sums, in, rows, cols);
  if (launched)
    fmt::print("launched {}, which is {}\n", name, kernel->entry_point());
  return launched;
}

/// One source, two kernels in one module.
kiln::Result<void> run(kiln::Service& service, const kiln::Device& device) {
  const auto kernels = service.get(
      kiln::Request::from_source(
          {.source = kSource,
           .file_name = "row_sums.cu",
           .defines = {fmt::format("THREADS={}", kThreads)},
           .name_expressions = {"row_sums<float>", "row_sums<__nv_bfloat16>"}}),
      device);
  if (!kernels)
    return tl::unexpected(kernels.error());
  fmt::print("{}: {}\n", kernels->name(),
             service.statistics().compiled == 1 ? "compiled" : "found in the cache");
  for (const char* name : {"row_sums<float>", "row_sums<__nv_bfloat16>"}) {
    if (auto launched = launch(*kernels, name); !launched)
      return launched;
  }
  return {};
}

}  // namespace

int main() {
  auto service = kiln::Service::open();
  if (!service) {
    fmt::print(stderr, "{}\n", service.error().message);
    return 1;
  }
  const auto device = service->device();
  if (!device) {
    fmt::print(stderr, "{}\n", device.error().message);
    return 1;
  }
  // The message of an error in the source is NVRTC's log.
  if (const auto done = run(*service, *device); !done) {
    fmt::print(stderr, "{}\n", done.error().message);
    return 1;
  }
  return 0;
}
