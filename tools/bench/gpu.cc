#include "tools/bench/gpu.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "device/driver_table.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

#define KILN_SYMBOL_TEXT(symbol) #symbol
#define KILN_SYMBOL(function) KILN_SYMBOL_TEXT(function)  // as cuda.h maps it

Result<GpuCalls> find_calls(const device::Driver& driver) {
  // Already open: this only adds a reference. Driver libraries are never closed.
  void* const library = ::dlopen(driver.path().c_str(), RTLD_NOW);
  const auto lacks = [&](const char* what) {
    return fail(ErrorCode::kUnavailable, "{} lacks {}", driver.path().native(), what);
  };
  if (library == nullptr)
    return lacks("the library itself");
  GpuCalls calls;
#define KILN_FIND(function)                                    \
  calls.function = reinterpret_cast<decltype(calls.function)>( \
      ::dlsym(library, KILN_SYMBOL(function)));                \
  if (calls.function == nullptr)                               \
    return lacks(KILN_SYMBOL(function));
  KILN_BENCH_DRIVER_FUNCTIONS(KILN_FIND)
#undef KILN_FIND
  calls.is_simulated = ::dlsym(library, "kiln_simulated_reset") != nullptr;
  return calls;
}

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::open(const device::Driver& driver,
                                       const Device& device) {
  GpuCalls calls = KILN_TRY(find_calls(driver));
  auto context = KILN_TRY(device::PrimaryContext::retain(driver, device));
  std::unique_ptr<Gpu> gpu(new Gpu(driver, calls, std::move(context)));
  KILN_TRY(gpu->begin());
  return gpu;
}

Gpu::Gpu(const device::Driver& driver, GpuCalls calls,
         std::shared_ptr<const device::PrimaryContext> context)
    : driver_(driver), calls_(calls), context_(std::move(context)) {}

Result<void> Gpu::begin() {
  KILN_TRY(
      check(driver_.table().cuCtxPushCurrent(context_->handle()), "cuCtxPushCurrent"));
  is_pushed_ = true;
  KILN_TRY(
      check(calls_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  KILN_TRY(check(calls_.cuEventCreate(&begin_, CU_EVENT_DEFAULT), "cuEventCreate"));
  return check(calls_.cuEventCreate(&end_, CU_EVENT_DEFAULT), "cuEventCreate");
}

Gpu::~Gpu() {
  const device::DriverTable& table = driver_.table();
  if (end_ != nullptr)
    log_failure(table, calls_.cuEventDestroy(end_), "cuEventDestroy");
  if (begin_ != nullptr)
    log_failure(table, calls_.cuEventDestroy(begin_), "cuEventDestroy");
  if (stream_ != nullptr)
    log_failure(table, calls_.cuStreamDestroy(stream_), "cuStreamDestroy");
  CUcontext popped = nullptr;
  if (is_pushed_)
    log_failure(table, table.cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
}

Result<void> Gpu::check(CUresult result, std::string_view call) const {
  return driver_result(driver_.table(), result, call,
                       device::label_of(context_->device()));
}

Result<std::uint64_t> Gpu::free_memory_bytes() const {
  std::size_t free = 0;
  std::size_t total = 0;
  KILN_TRY(check(calls_.cuMemGetInfo(&free, &total), "cuMemGetInfo"));
  return free;
}

Result<void> Gpu::finish() const {
  return check(calls_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

Result<void> Gpu::mark(CUevent event) const {
  return check(calls_.cuEventRecord(event, stream_), "cuEventRecord");
}

Result<bool> Gpu::has_begun() const {
  const CUresult result = calls_.cuEventQuery(begin_);
  if (result == CUDA_ERROR_NOT_READY)
    return false;
  KILN_TRY(check(result, "cuEventQuery"));
  return !calls_.is_simulated;
}

Result<float> Gpu::elapsed_ms() const {
  float ms = 0;
  KILN_TRY(check(calls_.cuEventSynchronize(end_), "cuEventSynchronize"));
  KILN_TRY(check(calls_.cuEventElapsedTime(&ms, begin_, end_), "cuEventElapsedTime"));
  return calls_.is_simulated ? 0 : ms;
}

Result<GpuMemory> Gpu::allocate(std::uint64_t bytes) const {
  CUdeviceptr address = 0;
  KILN_TRY(check(calls_.cuMemAlloc(&address, std::max<std::uint64_t>(bytes, 1)),
                 "cuMemAlloc"));
  const auto free = [this](void* memory) {
    const auto freed = reinterpret_cast<CUdeviceptr>(memory);
    log_failure(driver_.table(), calls_.cuMemFree(freed), "cuMemFree");
  };
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver gives addresses as numbers
  return GpuMemory(reinterpret_cast<void*>(address), free);
}

Result<void> Gpu::upload(void* to, std::span<const std::byte> bytes) const {
  return check(calls_.cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(to), bytes.data(),
                                   bytes.size()),
               "cuMemcpyHtoD");
}

}  // namespace kiln::tools
