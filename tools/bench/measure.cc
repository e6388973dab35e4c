#include "tools/bench/measure.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

// 16 bytes per load, four loads in flight, as many blocks as the memory system can use.
// The fill's numbers are below 2 and never NaN, in whichever type they are read.
constexpr const char* kSource = R"(
extern "C" __global__ void __launch_bounds__(512, 4)
bench_copy(uint4* __restrict__ to, const uint4* __restrict__ from,
           unsigned long long size) {
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * 512;
  unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * 512 + threadIdx.x;
  for (; i + 3 * step < size; i += 4 * step) {
    const uint4 a = from[i], b = from[i + step], c = from[i + 2 * step],
                d = from[i + 3 * step];
    to[i] = a, to[i + step] = b, to[i + 2 * step] = c, to[i + 3 * step] = d;
  }
  for (; i < size; i += step) to[i] = from[i];
}
extern "C" __global__ void bench_fill(unsigned* to, unsigned long long size) {
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i =
           static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < size; i += step) {
    unsigned x = static_cast<unsigned>(i) * 2654435761u;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
    to[i] = x & 0xbfffbfffu;
  }
}
)";

Geometry grid_of(const Device& device, std::uint32_t threads) {
  constexpr std::uint32_t kBlocksPerMultiprocessor = 4;
  const auto multiprocessors =
      static_cast<std::uint32_t>(std::max(device.multiprocessors, 1));
  return {.grid = {multiprocessors * kBlocksPerMultiprocessor, 1, 1},
          .block = {threads, 1, 1}};
}

/// The bytes to copy: for a memory-bound operation as many as it moves, for another one
/// enough to keep the device busy.
std::uint64_t copied_bytes(const BenchCase& which) {
  constexpr std::uint64_t kBusyBytes = std::uint64_t{256} << 20;
  const auto* const moved = std::get_if<BytesMoved>(&which.work);
  return moved == nullptr ? kBusyBytes : moved->least;
}

float median(std::vector<float> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace

Result<std::unique_ptr<Bench>> Bench::open(Service& service,
                                           const device::Driver& driver,
                                           const Device& device) {
  auto gpu = KILN_TRY(Gpu::open(driver, device));
  const Kernel both = KILN_TRY(service.get(
      Request::from_source({.source = kSource, .file_name = "bench.cu"}), device));
  Kernel copy = KILN_TRY(both.entry("bench_copy"));
  Kernel fill = KILN_TRY(both.entry("bench_fill"));
  return std::unique_ptr<Bench>(
      new Bench(service, std::move(gpu), std::move(copy), std::move(fill)));
}

Bench::Bench(Service& service, std::unique_ptr<Gpu> gpu, Kernel copy, Kernel fill)
    : service_(service),
      gpu_(std::move(gpu)),
      copy_(std::move(copy)),
      fill_(std::move(fill)) {}

Result<void> Bench::check_memory(const BenchCase& which) const {
  std::uint64_t needed = copied_bytes(which);
  for (const BenchTensor& tensor : which.tensors) needed += tensor.bytes;
  const std::uint64_t free = KILN_TRY(gpu_->free_memory_bytes());
  if (needed <= free)
    return {};
  return fail(ErrorCode::kResourceLimit,
              "it takes {} of memory, and {} are free on the device",
              format_size(needed), format_size(free));
}

Result<GpuMemory> Bench::make(const BenchTensor& tensor) const {
  GpuMemory memory = KILN_TRY(gpu_->allocate(tensor.bytes));
  switch (tensor.fill) {
    case BenchTensor::Fill::kNumbers: {
      const unsigned long long words = tensor.bytes / sizeof(std::uint32_t);
      KILN_TRY(fill_.launch(grid_of(fill_.device(), 256), gpu_->stream(), memory.get(),
                            words));
      break;
    }
    case BenchTensor::Fill::kZeros:
      KILN_TRY(gpu_->upload(memory.get(), std::vector<std::byte>(tensor.bytes)));
      break;
  }
  return memory;
}

Result<float> Bench::time(const Start& start, const Start& copy, int& copies_ahead) {
  constexpr int kMostAhead = 256;  // the driver queues four times as many, at least
  for (; copies_ahead <= kMostAhead; copies_ahead *= 2) {
    for (int i = 0; i < copies_ahead; ++i) KILN_TRY(copy());
    KILN_TRY(gpu_->mark_begin());
    KILN_TRY(start());
    KILN_TRY(gpu_->mark_end());
    const bool host_was_late = KILN_TRY(gpu_->has_begun());
    const float ms = KILN_TRY(gpu_->elapsed_ms());
    if (!host_was_late)
      return ms;
  }
  return fail(ErrorCode::kUnavailable,
              "the host needs longer to start it than the device for {} copies: its "
              "time would be counted",
              kMostAhead);
}

Result<std::optional<BenchRefusal>> Bench::prepare(BenchCase& which) {
  if (!which.prepare)
    return std::nullopt;
  return which.prepare(service_, fill_.device(), which);
}

Result<BenchTime> Bench::measure(const BenchCase& which, int rounds) {
  constexpr int kUncounted = 3;
  KILN_TRY(check_memory(which));
  std::vector<GpuMemory> tensors;
  std::vector<void*> addresses;
  for (const BenchTensor& tensor : which.tensors) {
    tensors.push_back(KILN_TRY(make(tensor)));
    // A tensor that the case does not have must be null.
    addresses.push_back(tensor.bytes == 0 ? nullptr : tensors.back().get());
  }
  const std::uint64_t half = copied_bytes(which) / 2;
  const GpuMemory from = KILN_TRY(make({.bytes = half}));
  const GpuMemory to = KILN_TRY(make({.bytes = half}));
  const unsigned long long packs = half / 16;
  const Start operation = [&] {
    return which.start(service_, copy_.device(), gpu_->stream(), addresses);
  };
  const Start copy = [&] {
    return copy_.launch(grid_of(copy_.device(), 512), gpu_->stream(), to.get(),
                        static_cast<const void*>(from.get()), packs);
  };
  for (int round = 0; round < kUncounted; ++round) {
    KILN_TRY(operation());
    KILN_TRY(copy());
  }
  KILN_TRY(gpu_->finish());
  int copies_ahead = 1;
  std::vector<float> operation_ms;
  std::vector<float> copy_ms;
  const bool is_beside_a_copy = std::holds_alternative<BytesMoved>(which.work);
  for (int round = 0; round < rounds; ++round) {
    operation_ms.push_back(KILN_TRY(time(operation, copy, copies_ahead)));
    if (is_beside_a_copy)
      copy_ms.push_back(KILN_TRY(time(copy, copy, copies_ahead)));
  }
  KILN_TRY(gpu_->finish());
  return BenchTime{.operation_ms = median(std::move(operation_ms)),
                   .copy_ms = is_beside_a_copy ? median(std::move(copy_ms)) : 0};
}

}  // namespace kiln::tools
